// Pages of one relation at a time, with a button for each.

import { isNamed, shortOf } from "./maps.js";
import { AnswerPage } from "./places.js";
import { element, get } from "./tables.js";

/** @import { Explorer } from "./main.js" */
/** @typedef {{ layer: string, relation: number }} Relation */

/** @type {(relation: Relation) => string} */
export const keyOf = ({ layer, relation }) => `${layer} ${relation}`;

export class RelationPage extends AnswerPage {
  listed = "";

  /**
   * @param {Explorer} explorer
   * @param {string} name
   * @param {string} path
   * @param {string} list id of the element with the buttons
   */
  constructor(explorer, name, path, list) {
    super(explorer, name, path);
    this.list = get(list);
    this.list.addEventListener("click", ({ target }) => {
      const button = target.closest("button");
      if (button) this.choose(this.relations[button.dataset.place]);
    });
  }

  /** @returns {Relation[]} */
  get relations() {
    return [];
  }

  get chosen() {
    const { layer, relation } = this.explorer.state, { relations } = this;
    const within = layer ? relations.filter((one) => isNamed(one.layer, layer)) : relations;
    return within.find((one) => one.relation === relation) || within[0] || relations[0];
  }

  choose({ layer, relation }) {
    this.explorer.set({ layer: shortOf(layer), relation });
  }

  // Brackets lead to the relation before and after.
  key(event) {
    const step = { "[": -1, "]": 1 }[event.key], { relations } = this;
    if (!step || !relations.length) return false;
    const now = relations.findIndex((one) => keyOf(one) === keyOf(this.chosen));
    this.choose(relations[Math.max(0, Math.min(relations.length - 1, now + step))]);
    return true;
  }

  // The buttons by layer, of which the chosen one is pressed.
  /** @type {(hasAnswer: (relation: Relation) => boolean) => void} */
  mark(hasAnswer) {
    const { relations } = this, key = JSON.stringify(relations), chosen = keyOf(this.chosen);
    if (this.listed !== key) {
      this.listed = key;
      this.list.replaceChildren(...[...new Set(relations.map(({ layer }) => layer))].flatMap((layer) => {
        const row = element("div", { className: "switches", role: "group", "aria-label": `relations of ${layer}` });
        relations.forEach((one, place) => {
          if (one.layer === layer) row.append(element("button", { text: `${one.relation}`, "data-place": `${place}`, "aria-label": `${layer} relation ${one.relation}` }));
        });
        return [element("h2", { className: "title", text: `${layer} relations` }), row];
      }));
    }
    for (const button of this.list.querySelectorAll("button")) {
      const one = relations[button.dataset.place];
      button.setAttribute("aria-pressed", String(keyOf(one) === chosen));
      button.disabled = !hasAnswer(one);
    }
  }
}
