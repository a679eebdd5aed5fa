// The text beside a map: senders coloured by what the chosen receiver gets from them, the strongest joined to it by lines.

import { colourOf } from "./colours.js";
import { element, fillTable, get, isolated, written } from "./tables.js";

/** @import { Labels, Pair, PairMap } from "./maps.js" */
/** @import { Look } from "./colours.js" */

const LINES = 8;
const ROWS = 12;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;

const isRightToLeft = (label) => RIGHT_TO_LEFT.test(label);
const hasLetters = (label) => /\p{L}/u.test(label);

// For each token, whether it belongs to a run that is read from right to left: its own letters say so, or those on both
// sides of a run without letters; where these differ, the direction of the whole text does.
/** @type {(labels: string[], whole: boolean) => boolean[]} */
export function directions(labels, whole) {
  const found = labels.map((label) => (hasLetters(label) ? isRightToLeft(label) : null));
  for (let place = 0; place < found.length; place++) {
    if (found[place] !== null) continue;
    let end = place;
    while (end < found.length && found[end] === null && !labels[end].endsWith("↵")) end++;
    const before = found[place - 1], after = found[end] ?? null;
    found.fill(before === after ? before : whole, place, Math.max(end, place + 1));
  }
  return found;
}

const PART = /^(.+?)([⁰¹²³⁴⁵⁶⁷⁸⁹]+)⁄[₀₁₂₃₄₅₆₇₈₉]+$/u; // of a character that several tokens hold

// Tokens as elements. A label is text and never markup. Tokens keep to themselves, and runs in the order they are read. A
// character that several tokens hold is written once, above a line for each.
/** @type {(labels: string[], container: HTMLElement) => HTMLElement[]} */
export function tokenElements(labels, container) {
  const letters = labels.filter(hasLetters), whole = letters.filter(isRightToLeft).length * 2 > letters.length;
  const list = document.createDocumentFragment(), elements = [], rightToLeft = directions(labels, whole);
  let run = list, parts = null;
  labels.forEach((label, place) => {
    const token = element("bdi", { text: label.replace(/^␣/, " "), title: `${place} ${label}`, "data-place": `${place}` });
    elements.push(token);
    if (rightToLeft[place] === whole) {
      run = list;
    } else if (run === list) {
      run = element("span", { dir: whole ? "ltr" : "rtl" });
      list.append(run);
    }
    const [, character, number] = label.match(PART) || [];
    if (!character) {
      run.append(token);
    } else {
      if (number === "¹" || !parts) {
        parts = element("span", { className: "parts" });
        run.append(element("span", { className: "character" }, element("span", { text: character.replace("␣", " "), className: "glyph" }), parts));
      }
      parts.append(token);
    }
    if (label.endsWith("↵")) list.append(document.createElement("br"));
  });
  container.dir = whole ? "rtl" : "ltr";
  container.replaceChildren(list);
  return elements;
}

// Black or white, whichever has more contrast (WCAG 2), which is never less than 4.5.
/** @type {(colour: number[]) => string} */
export function inkOn(colour) {
  const [red, green, blue] = colour.map((part) => (part <= 10 ? part / 3295 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.1791 ? "#000000" : "#ffffff";
}

/** @type {(element: HTMLElement, colour: number[]) => void} */
export function dye({ style }, colour) {
  style.backgroundColor = `rgb(${colour})`;
  style.color = inkOn(colour);
}

// What to do with the place of a token of a text that is clicked.
/** @type {(text: HTMLElement, choose: (place: number) => void) => void} */
export function onToken(text, choose) {
  text.addEventListener("click", ({ target }) => {
    const token = /** @type {HTMLElement} */ (target).closest("bdi");
    if (token) choose(Number(token.dataset.place));
  });
}

export class Links {
  /** @type {PairMap} */
  map;
  /** @type {Pair} */
  chosen;

  constructor(on) {
    this.box = get("links");
    this.text = this.box.querySelector(".text");
    this.lines = this.box.querySelector("svg");
    this.table = get("row-table");
    this.title = get("links-title");
    this.labels = null;
    this.text.addEventListener("pointerover", (event) => {
      const token = event.target.closest("bdi");
      if (token) on.hover({ i: Number(token.dataset.place), j: null });
    });
    this.text.addEventListener("pointerleave", () => on.hover({ i: null, j: null }));
    onToken(this.text, (i) => on.choose({ i, j: null }));
    new ResizeObserver(() => this.map && this.drawLines()).observe(this.box);
  }

  /** @type {(map: PairMap, labels: Labels, look: Look, chosen: Pair) => void} */
  show(map, labels, look, chosen) {
    if (this.labels !== labels) {
      this.labels = labels;
      this.one = labels.senders === labels.receivers;
      this.senders = tokenElements(labels.senders, this.text);
    }
    Object.assign(this, { map, chosen });
    const { i, j } = chosen;
    for (const token of this.text.querySelectorAll(".receiver, .sender")) token.classList.remove("receiver", "sender");
    if (i === null) {
      for (const token of this.coloured || []) token.style.backgroundColor = token.style.color = "";
      this.coloured = [];
      this.links = [];
      this.title.textContent = "Links";
      fillTable(this.table, "Point at a token, or choose a pair of the map with the arrow keys.", ["place", "sender", "value"], []);
      this.drawLines();
      return;
    }
    const row = map.row(i);
    this.coloured = this.senders;
    for (let place = 0; place < row.length; place++) {
      const { style } = this.senders[place];
      if (row[place] === row[place]) dye(this.senders[place], colourOf(row[place], map, look));
      else style.backgroundColor = style.color = "";
    }
    const seen = [...row.keys()].filter((place) => row[place] === row[place] && row[place] !== 0);
    seen.sort((a, b) => Math.abs(row[b]) - Math.abs(row[a]));
    this.links = seen.slice(0, LINES).map((place) => ({ place, value: row[place] }));
    if (this.one) this.senders[i].classList.add("receiver");
    if (j !== null) this.senders[j].classList.add("sender");
    if (this.one) this.reveal(this.senders[i]);
    this.title.textContent = `${map.name} of receiver ${i} ${labels.receivers[i]}`;
    const rows = seen.slice(0, ROWS).map((place) => [`${place}`, isolated(labels.senders[place]), written(row[place])]);
    fillTable(this.table, `Senders of which receiver ${i} “${labels.receivers[i]}” gets most, ${map.title}`, ["place", "sender", "value"], rows);
    this.drawLines();
  }

  // Scroll the text, and nothing else, until a token is seen.
  reveal(token) {
    const { top, bottom } = token.getBoundingClientRect(), box = this.box.getBoundingClientRect();
    if (top < box.top + 22 || bottom > box.bottom) this.box.scrollTop += (top + bottom - box.top - box.bottom) / 2;
  }

  drawLines() {
    const { i } = this.chosen;
    const paths = [];
    if (i !== null && this.one) {
      const centre = (token) => [token.offsetLeft + token.offsetWidth / 2, token.offsetTop];
      const origin = this.text.offsetLeft, above = this.text.offsetTop;
      const [x, y] = centre(this.senders[i]);
      for (const { place, value } of this.links) {
        if (place === i) continue;
        const [a, b] = centre(this.senders[place]);
        const lift = 10 + Math.min(40, Math.hypot(x - a, y - b) / 4);
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("d", `M${x + origin},${y + above} Q${(x + a) / 2 + origin},${Math.min(y, b) - lift + above} ${a + origin},${b + above}`);
        path.setAttribute("stroke-width", `${Math.max(0.75, (4 * Math.abs(value)) / (this.map.most || 1))}`);
        paths.push(path);
      }
    }
    this.lines.replaceChildren(...paths);
  }
}
