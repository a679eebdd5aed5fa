// Views as files: pages, pictures, and the numbers on the screen. Nothing leaves this machine.

import { LONGEST, mapDrawing, MOST_FIELDS, tableDrawing } from "./drawing.js";
import { pooled } from "./maps.js";
import { csvOfRows } from "./tables.js";

/** @import { Explorer } from "./main.js" */
/** @import { MapView } from "./mapview.js" */

export const MOST_NUMBERS = 4e6;
const SHARPNESS = 2; // pixels of a picture for each of a drawing

export function save(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export const fileName = (title, ending) => `${title.replace(/[^\w.]+/g, "-").replace(/^-+|-+$/g, "") || "view"}.${ending}`;

// Pairs in view, a line each: places, tokens and value.
/** @param {MapView} view */
export function pairRows(view) {
  const { r0, r1, c0, c1 } = view.window, { map, labels } = view;
  if (!map.ready) throw new Error("The map is still on its way; save it when it is drawn.");
  if ((r1 - r0) * (c1 - c0) > MOST_NUMBERS) throw new Error("CSV: too many pairs are in view; make the map larger first");
  const rows = [], row = new Float32Array(c1 - c0);
  for (let i = r0; i < r1; i++) {
    map.fill(i, i + 1, c0, c1, row);
    for (let j = c0; j < c1; j++) {
      const value = row[j - c0];
      if (value === value) rows.push([i, labels.receivers[i], j, labels.senders[j], value]);
    }
  }
  return { headings: ["receiver", "receiver_token", "sender", "sender_token", "value"], rows };
}

// Pairs in view as a drawing; where they are many, each field is the strongest of some pairs.
/** @param {MapView} view */
export function pairDrawing(view) {
  const { r0, r1, c0, c1 } = view.window, { map, labels, look } = view, rows = r1 - r0, columns = c1 - c0;
  if (map.most === null || !map.ready) throw new Error("The map is still being measured; save it when it is drawn.");
  const pool = rows * columns > MOST_FIELDS ? Math.ceil(Math.max(rows, columns) / LONGEST) : 1, [high, wide] = [Math.ceil(rows / pool), Math.ceil(columns / pool)];
  const note = pool > 1 ? `Each pixel is the strongest of ${pool} × ${pool} pairs.` : "", shown = { receivers: labels.receivers.slice(r0, r1), senders: labels.senders.slice(c0, c1) };
  return mapDrawing(map.title, shown, { values: pooled(map, r0, r1, c0, c1, high, wide), high, wide }, map, look, note);
}

async function pictureOf(drawing) {
  const image = new Image(), canvas = document.createElement("canvas");
  canvas.width = drawing.width * SHARPNESS;
  canvas.height = drawing.height * SHARPNESS;
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing)}`;
  await image.decode();
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => { canvas.toBlob(done); });
}

// The page as it came, without its data, which may be large.
const SOURCE = (() => {
  const page = /** @type {HTMLElement} */ (document.documentElement.cloneNode(true));
  page.querySelector("#data").textContent = "";
  return page.outerHTML;
})();

// The page with other data in it: a file that shows the same without a server.
function pageWith(data) {
  const page = new DOMParser().parseFromString(`<!DOCTYPE html>${SOURCE}`, "text/html");
  page.getElementById("data").textContent = JSON.stringify(data).replace(/[<>&]/g, (sign) => `\\u00${sign.charCodeAt(0).toString(16)}`);
  const policy = /** @type {HTMLMetaElement} */ (page.querySelector("meta[http-equiv]"));
  policy.content = policy.content.replace("connect-src 'self'", "connect-src 'none'");
  page.title = data.recording.title;
  return `<!DOCTYPE html>\n${page.documentElement.outerHTML}\n`;
}

// What a page shows, in one of the kinds of file; a page gives its numbers, and its drawing if it has one.
/** @type {(kind: string, page: any, explorer: Explorer) => Promise<void>} */
export async function saveAs(kind, page, explorer) {
  const { theme } = explorer.look, name = fileName(page.exported.title, kind);
  if (kind === "html") return save(name, new Blob([pageWith(await explorer.contents())], { type: "text/html" }));
  if (kind === "csv") {
    const { headings, rows } = page.exported.numbers();
    return save(name, new Blob([csvOfRows(headings, rows)], { type: "text/csv" }));
  }
  const drawing = page.exported.drawing ? page.exported.drawing() : tableDrawing({ caption: page.exported.title, ...page.exported.numbers() }, theme);
  if (kind === "svg") return save(name, new Blob([drawing], { type: "image/svg+xml" }));
  return save(name, await pictureOf(drawing));
}
