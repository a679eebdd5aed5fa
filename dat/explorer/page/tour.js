// A tour: a few stops, each a text beside what it is about. A page of a server begins it by itself, once for each browser.

import { all, get } from "./tables.js";

/** @import { Explorer } from "./main.js" */

const TOURED = "dat_tour=seen"; // a cookie, which all ports of a machine share; other storage is of one port
const STOPS = {
  pairs: [
    ["#gallery", "All maps of the model, layer by layer, as thumbnails. Choose one: click it, tap it, or use the keys [ and ]."],
    ["#main-map", "The chosen map: a row for each receiver i, a column for each sender j. The colour of a field is the value of the pair, on the scale below the map. Choose a pair: click it, tap it, or use the arrow keys."],
    ["#map-note", "What these values are: a formula, a sentence and the unit. The buttons above show the same pairs in other ways."],
    ["#side", "The text, coloured by what the chosen receiver gets from each token. Lines lead to its strongest senders; the table has the numbers."],
  ],
  vision: [
    ["#picture", "The image, in the patches that the model reads. Choose one: click it, tap it, or use the arrow keys."],
    ["#vision-maps", "How the chosen patch compares with every patch, a map for each relation, layer by layer: the stronger the colour, the larger the value. Choose another sample above: which map differs between the answers?"],
    ["#vision-note", "What these values are: a formula, a sentence and the unit. The menus above show the same pairs in other ways."],
  ],
  all: [
    ["#tab-effects", "Which heads, relations and symbols matter? This page takes each away in turn, and compares it with random changes of the same size."],
    ["#tab-card", "One relation in figures: what its removal does beside random changes of the same size, how well it tells pairs apart beside other scores, and the pairs at both ends."],
    ["#tools", "Save what you see as a picture, as numbers, or as a file that needs no server. Cite copies a link, the command and the BibTeX entries; Tour comes back here."],
  ],
};

export class Tour {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    this.explorer = explorer;
    this.dialog = get("tour");
    this.stops = [];
    this.at = 0;
    get("tour-button").addEventListener("click", () => this.start());
    get("tour-next").addEventListener("click", () => this.go(1));
    get("tour-back").addEventListener("click", () => this.go(-1));
    get("tour-end").addEventListener("click", () => this.end());
    document.addEventListener("keydown", (event) => {
      if (!this.dialog.open || document.querySelector("dialog:modal")) return;
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") this.end();
      else if (step && this.dialog.contains(event.target)) this.go(step);
      else return;
      event.preventDefault();
      event.stopPropagation();
    }, true);
    for (const moved of ["resize", "scroll"]) addEventListener(moved, () => this.dialog.open && (this.place() || this.dock(true)), true);
    const { server, page } = explorer;
    if (server && page === this.page && !document.cookie.includes(TOURED)) this.start();
  }

  // Where it begins: on maps.
  get page() {
    const { names } = this.explorer;
    return names.includes("vision") ? "vision" : names[0];
  }

  start() {
    const { explorer, page } = this;
    if (explorer.server) document.cookie = `${TOURED}; max-age=31536000; samesite=strict`;
    if (!this.dialog.open) this.from = explorer.page;
    this.stops = [...STOPS[page === "vision" ? page : "pairs"], ...STOPS.all].filter(([which]) => !all(which)[0].hidden);
    this.at = 0;
    if (!this.dialog.open) this.dialog.show();
    this.go(0);
  }

  end() {
    this.mark(null);
    this.dialog.close();
    if (this.explorer.page === this.page) this.explorer.set({ page: this.from });
  }

  // Somebody who goes to another page has left the tour.
  follow() {
    if (this.dialog.open && this.explorer.page !== this.page) this.end();
  }

  go(by) {
    const at = this.at + by, { length } = this.stops;
    if (at === length) return this.end();
    this.at = Math.max(0, at);
    this.explorer.set({ page: this.page });
    const [which, text] = this.stops[this.at];
    this.mark(document.querySelector(which));
    get("tour-text").textContent = text;
    get("tour-count").textContent = `${this.at + 1} of ${length}`;
    get("tour-back").disabled = !this.at;
    get("tour-next").textContent = this.at + 1 < length ? "Next" : "Done";
    this.dock(innerWidth <= 900);
    if (!this.place()) this.dock(true);
    get("tour-next").focus({ preventScroll: true });
  }

  mark(target) {
    if (this.target) this.target.classList.remove("toured");
    this.target = target;
    if (target) target.classList.add("toured");
  }

  // Below the page, which then ends above it, or not; what is larger than the room for it shows its beginning.
  dock(is) {
    const { dialog, target } = this;
    dialog.classList.toggle("docked", is);
    dialog.style.left = dialog.style.top = "";
    document.documentElement.style.setProperty("--tour", `${dialog.offsetHeight}px`);
    const fits = target.offsetHeight < document.body.clientHeight;
    target.scrollIntoView({ block: !fits ? "start" : innerWidth > 900 ? "nearest" : "center", inline: "center" });
  }

  // Beside what it is about; whether there is room.
  place() {
    if (this.dialog.classList.contains("docked")) return true;
    const { left, right, top, bottom } = this.target.getBoundingClientRect(), { offsetWidth: wide, offsetHeight: high, style } = this.dialog, gap = 10;
    const within = (value, size, room) => Math.max(gap, Math.min(value, room - size - gap));
    const spots = [[right + gap, top], [left - wide - gap, top], [left, bottom + gap], [left, top - high - gap]].map(([x, y]) => [within(x, wide, innerWidth), within(y, high, innerHeight)]);
    const spot = spots.find(([a, b]) => a >= right || a + wide <= left || b >= bottom || b + high <= top);
    if (!spot) return false;
    [style.left, style.top] = spot.map((place) => `${place}px`);
    return true;
  }
}
