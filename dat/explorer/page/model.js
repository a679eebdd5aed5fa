// Model: sizes, configuration and costs.

import { Drawing } from "./drawing.js";
import { AnswerPage } from "./places.js";
import { element, fillTable, get } from "./tables.js";

/** @import { Explorer } from "./main.js" */

export class ModelPage extends AnswerPage {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    super(explorer, "model", "model");
  }

  load() {}

  show() {
    const { kept } = this.explorer;
    get("model-busy").hidden = Boolean(kept.model);
    get("model-facts").hidden = !kept.model;
    if (!kept.model) {
      this.ask();
      return;
    }
    const { sections, parts } = kept.model;
    get("model-figure").replaceChildren(this.drawing().element);
    const tables = Object.entries(sections).map(([heading, rows]) => {
      const table = element("table"), most = Math.max(...rows.map((row) => row.length));
      const named = heading === "parameters" ? ["part", "parameters", "remark"] : ["name", "value", ...Array(most).fill("remark")];
      fillTable(table, heading, named.slice(0, most), rows);
      return table;
    });
    get("model-tables").replaceChildren(...tables);
    get("model-figure").setAttribute("aria-label", `Parameters and operations of ${parts.length} parts`);
  }

  async ask() {
    const { explorer } = this, { kept } = explorer;
    if (this.asking === kept) return;
    this.asking = kept;
    try {
      kept.model = await explorer.server.ask("model", {});
      if (explorer.page === "model") explorer.show();
    } catch (error) {
      get("model-busy").hidden = true;
      explorer.complain(error.message);
    } finally {
      if (this.asking === kept) this.asking = null;
    }
  }

  // Bars of the parameters and operations of each part.
  drawing() {
    const { parts } = this.explorer.kept.model, { theme } = this.explorer.look, left = 190, wide = 200, row = 24;
    const drawing = new Drawing(left + 2 * (wide + 90), 44 + parts.length * row, "Parameters and operations of the parts", theme);
    const short = (value) => (value ? Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value) : "0");
    const columns = [["parameters", 1], ["operations of a forward pass, a token", 2]];
    columns.forEach(([name, column], number) => {
      const x = left + number * (wide + 90), most = Math.max(1, ...parts.map((part) => part[column]));
      drawing.text(x, 20, name, { "font-weight": 600 });
      parts.forEach((part, place) => {
        const y = 34 + place * row, length = (wide * part[column]) / most;
        if (!number) drawing.text(left - 10, y + 12, part[0], { "text-anchor": "end" });
        drawing.rect(x, y, length, 16, drawing.marks[number + 1]);
        drawing.text(x + length + 5, y + 12, short(part[column]), { fill: drawing.faint, "font-size": 11 });
      });
    });
    return drawing;
  }

  get exported() {
    const { model } = this.explorer.kept;
    if (!model) throw new Error("The model is still being described.");
    const rows = Object.entries(model.sections).flatMap(([heading, found]) => found.map(([name, value, more]) => [heading, name, value, more || ""]));
    return { title: "model", numbers: () => ({ headings: ["section", "name", "value", "remark"], rows }), drawing: () => this.drawing() };
  }
}
