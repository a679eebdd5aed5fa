// Tables, and texts as elements. What comes from a text or a model is text and never markup.

/** @type {(id: string) => any} The element of the page with an id. */
export const get = (id) => document.getElementById(id);
/** @type {(selector: string) => any[]} */
export const all = (selector) => [...document.querySelectorAll(selector)];

/** @type {(tag: string, properties?: { text?: string, [name: string]: any }, ...children: (string | Node)[]) => any} */
export function element(tag, { text, ...properties } = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export const isolated = (text) => element("bdi", { text });

function cellOf(tag, content) {
  const cell = document.createElement(tag);
  if (tag === "th") cell.scope = "col";
  cell.append(content);
  return cell;
}

/** @type {(table: HTMLElement, caption: string, headings: string[], rows: (string | Node)[][]) => void} */
export function fillTable(table, caption, headings, rows) {
  const head = element("thead", {}, element("tr", {}, ...headings.map((heading) => cellOf("th", heading))));
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr", {}, ...row.map((content, place) => cellOf(place ? "td" : "th", content)));
    if (row.length) line.firstElementChild.scope = "row";
    body.append(line);
  }
  table.replaceChildren(element("caption", { text: caption }), head, body);
}

/** @type {(value: number | null) => string} */
export const written = (value) => (value === null ? "–" : value === 0 ? "0" : Math.abs(value) < 0.001 ? value.toExponential(2) : value.toPrecision(4));
export const signed = (value) => `${value < 0 ? "" : "+"}${written(value)}`;
export const percent = (share) => `${(100 * share).toFixed(share < 0.01 ? 2 : 1)} %`;

// Options of a select: values and names; it is left alone if it has them already.
/** @type {(select: HTMLSelectElement, options: [string | number, string | number][], chosen: string | number) => void} */
export function fillOptions(select, options, chosen) {
  const key = JSON.stringify(options);
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(...options.map(([value, name]) => new Option(`${name}`, `${value}`)));
  }
  select.value = `${chosen}`;
}

// A text that a spreadsheet would compute follows an apostrophe; numbers stay as they are.
const harmless = (text) => text.replace(/^'*(?![-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$)[=+\-@＝＋－＠\t\r\n](?=[^])/i, "'$&");
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
/** @type {(headings: string[], rows: any[][]) => string} A table as CSV, the same text as Python's. */
export const csvOfRows = (headings, rows) => `${[headings, ...rows].map((row) => row.map((one) => quoted(harmless(`${one ?? ""}`))).join(",")).join("\n")}\n`;
