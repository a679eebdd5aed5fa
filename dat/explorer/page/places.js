// Pages that ask the server about the prediction after a chosen token.

import { get } from "./tables.js";

/** @import { Explorer, Recording } from "./main.js" */

export class PlacePage {
  /**
   * @param {Explorer} explorer
   * @param {"writes" | "patching"} name of its answers, and of its elements
   * @param {object} fresh what is unknown again once another token is chosen
   */
  constructor(explorer, name, fresh) {
    this.explorer = explorer;
    this.name = name;
    this.fresh = fresh;
    /** @type {AbortController | null} */
    this.asking = null;
    get(`${name}-text`).addEventListener("click", (event) => {
      const token = event.target.closest("bdi");
      if (token && explorer.server) this.choose(Number(token.dataset.place));
    });
  }

  choose(place) {
    this.explorer.set({ place, ...this.fresh });
  }

  // Arrow keys choose the token.
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], { kept, server, state } = this.explorer, found = kept[this.name];
    if (!step || !server || !found) return false;
    this.choose(Math.max(0, Math.min(found.tokens.length - 1, (state.place ?? found.place) + step)));
    return true;
  }

  /** @param {Recording} recording */
  load(recording) {
    this.recording = recording;
    if (this.asking) this.asking.abort();
    this.asked = null;
  }
}
