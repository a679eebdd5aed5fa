// Thumbnails of all maps of a page, painted when they come into view.

import { paint } from "./colours.js";
import { pooled } from "./maps.js";
import { element } from "./tables.js";
import { work } from "./work.js";

/** @import { Look } from "./colours.js" */
/** @import { PairMap } from "./maps.js" */

const THUMB = 48; // fields of a thumbnail at most; each is the strongest of a block, of one receiver where there are many

export class Gallery {
  end; colours; // of the thumbnails as they are

  constructor(list, on) {
    this.element = list;
    this.on = on;
    this.thumbs = [];
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        this.seen.unobserve(entry.target);
        const thumb = this.thumbs.find((one) => one.button === entry.target);
        if (thumb) thumb.map.whenReady(() => work.add(() => this.paint(thumb), false));
      }
    }, { root: null });
    list.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      this.step(step);
    });
  }

  /** @type {(choices: { number: number, map: PairMap }[], look: Look) => void} */
  show(choices, look) {
    this.look = look;
    const list = document.createDocumentFragment();
    this.thumbs = [];
    let block = null, title = null;
    for (const choice of choices) {
      if (choice.map.heads.title !== title) {
        title = choice.map.heads.title;
        const heading = element("div", { className: "title", text: title, "aria-hidden": "true" }); // its group has the same name
        block = document.createElement("div");
        block.className = "maps";
        block.setAttribute("role", "group");
        block.setAttribute("aria-label", title);
        list.append(heading, block);
      }
      const button = document.createElement("button");
      button.className = "thumb";
      button.id = `thumb-${this.thumbs.length}`;
      button.setAttribute("role", "option");
      button.tabIndex = -1;
      button.setAttribute("aria-label", choice.map.title);
      button.title = choice.map.title;
      const canvas = document.createElement("canvas"), name = document.createElement("span");
      name.textContent = choice.map.name;
      button.append(canvas, name);
      const thumb = { ...choice, button, canvas, values: null };
      button.addEventListener("click", () => this.on.choose(thumb));
      this.thumbs.push(thumb);
      block.append(button);
      this.seen.observe(button);
    }
    this.element.replaceChildren(list);
  }

  // end: of one scale of all maps; without, each has its own
  recolour(look, end) {
    const colours = JSON.stringify([look, end]);
    if (this.colours === colours) return;
    Object.assign(this, { look, end, colours });
    for (const thumb of this.thumbs) if (thumb.values) this.colour(thumb);
  }

  paint(thumb) {
    const { map } = thumb;
    thumb.rows = Math.min(THUMB, map.n);
    thumb.columns = Math.min(THUMB, map.m);
    if (map.n <= THUMB) {
      thumb.values = pooled(map, 0, map.n, 0, map.m, thumb.rows, thumb.columns);
    } else {
      thumb.values = new Float32Array(thumb.rows * thumb.columns);
      for (let row = 0; row < thumb.rows; row++) {
        const i = Math.floor(((row + 0.5) * map.n) / thumb.rows);
        thumb.values.set(pooled(map, i, i + 1, 0, map.m, 1, thumb.columns), row * thumb.columns);
      }
    }
    map.letGo(); // of many
    this.colour(thumb);
  }

  colour(thumb) {
    thumb.canvas.width = thumb.columns;
    thumb.canvas.height = thumb.rows;
    const largest = () => thumb.values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
    const scale = { most: this.end ?? thumb.map.largest ?? largest(), diverging: thumb.map.diverging };
    thumb.canvas.getContext("2d").putImageData(paint(thumb.values, thumb.rows, thumb.columns, scale, this.look), 0, 0);
  }

  mark(heads, number) {
    for (const thumb of this.thumbs) {
      const chosen = thumb.map.heads.place === heads && thumb.number === number;
      const was = thumb.button.getAttribute("aria-selected") === "true";
      thumb.button.setAttribute("aria-selected", String(chosen));
      if (!chosen) continue;
      this.element.setAttribute("aria-activedescendant", thumb.button.id);
      if (!was) thumb.button.scrollIntoView({ block: "nearest" });
    }
  }

  step(by) {
    const now = this.thumbs.findIndex((thumb) => thumb.button.getAttribute("aria-selected") === "true");
    const next = this.thumbs[Math.max(0, Math.min(this.thumbs.length - 1, now + by))];
    if (next) this.on.choose(next);
  }
}
