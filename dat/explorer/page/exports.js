// Views as files: pages, pictures, and the numbers on the screen. Nothing leaves this machine.

const MOST_NUMBERS = 4e6;
const MOST_FIELDS = 40000;
const SHARPNESS = 2; // pixels of a picture for each of a drawing

function save(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const fileName = (title, ending) => `${title.replace(/[^\w.]+/g, "-").replace(/^-+|-+$/g, "") || "view"}.${ending}`;
// A text that a spreadsheet would compute follows an apostrophe; numbers stay as they are.
const harmless = (text) => text.replace(/^'*(?![-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$)[=+\-@＝＋－＠\t\r\n](?=[^])/i, "'$&");
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
const csvOfRows = (headings, rows) => `${[headings, ...rows].map((row) => row.map((one) => quoted(harmless(`${one ?? ""}`))).join(",")).join("\n")}\n`;

// Pairs in view, a line each: places, tokens and value.
function pairRows(view) {
  const { r0, r1, c0, c1 } = view.window, { map, labels } = view;
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

// Pairs in view as a drawing of squares, with tokens above and at the left, for papers.
function pairDrawing(view) {
  const { r0, r1, c0, c1 } = view.window, { map, labels, look } = view, size = 12, left = 90, top = 90;
  if ((r1 - r0) * (c1 - c0) > MOST_FIELDS) throw new Error("SVG: too many pairs are in view; make the map larger first, or save a PNG");
  const drawing = new Drawing(left + (c1 - c0) * size, top + (r1 - r0) * size, map.title, look.theme), row = new Float32Array(c1 - c0);
  const small = { "font-size": size * 0.8 };
  for (let j = c0; j < c1; j++) drawing.text(0, 0, labels.senders[j], { transform: `translate(${left + (j - c0 + 0.75) * size},${top - 4}) rotate(-90)`, ...small });
  for (let i = r0; i < r1; i++) drawing.text(left - 4, top + (i - r0) * size + size * 0.75, labels.receivers[i], { "text-anchor": "end", ...small });
  for (let i = r0; i < r1; i++) {
    map.fill(i, i + 1, c0, c1, row);
    for (let j = c0; j < c1; j++) {
      if (row[j - c0] !== row[j - c0]) continue;
      drawing.rect(left + (j - c0) * size, top + (i - r0) * size, size, size, `rgb(${colourOf(row[j - c0], map, look)})`, { "shape-rendering": "crispEdges" });
    }
  }
  return drawing;
}

async function pictureOf(drawing) {
  const image = new Image(), canvas = document.createElement("canvas");
  canvas.width = drawing.width * SHARPNESS;
  canvas.height = drawing.height * SHARPNESS;
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing)}`;
  await image.decode();
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return blobOf(canvas);
}

const blobOf = (canvas) => new Promise((done) => { canvas.toBlob(done); });

// The page as it came, without its data, which may be large.
const SOURCE = (() => {
  const page = document.documentElement.cloneNode(true);
  page.querySelector("#data").textContent = "";
  return page.outerHTML;
})();

// The page with other data in it: a file that shows the same without a server.
function pageWith(data) {
  const page = new DOMParser().parseFromString(`<!DOCTYPE html>${SOURCE}`, "text/html");
  page.getElementById("data").textContent = JSON.stringify(data).replace(/[<>&]/g, (sign) => `\\u00${sign.charCodeAt(0).toString(16)}`);
  const policy = page.querySelector("meta[http-equiv]");
  policy.content = policy.content.replace("connect-src 'self'", "connect-src 'none'");
  page.title = data.recording.title;
  return `<!DOCTYPE html>\n${page.documentElement.outerHTML}\n`;
}

// What a page shows, in one of the kinds of file; a page gives its numbers, and its drawing if it has one.
async function saveAs(kind, page, explorer) {
  const { theme } = explorer.look, name = fileName(page.exported.title, kind);
  if (kind === "html") return save(name, new Blob([pageWith(explorer.contents)], { type: "text/html" }));
  if (kind === "csv") {
    const { headings, rows } = page.exported.numbers();
    return save(name, new Blob([csvOfRows(headings, rows)], { type: "text/csv" }));
  }
  if (kind === "png" && page.exported.canvas) return save(name, await blobOf(page.exported.canvas));
  const drawing = page.exported.drawing ? page.exported.drawing() : tableDrawing({ caption: page.exported.title, ...page.exported.numbers() }, theme);
  if (kind === "svg") return save(name, new Blob([drawing], { type: "image/svg+xml" }));
  return save(name, await pictureOf(drawing));
}
