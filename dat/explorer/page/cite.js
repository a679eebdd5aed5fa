// A view to cite: its link, the command that opens it, and BibTeX entries, each copied with one click.

import { get } from "./tables.js";

/** @import { Explorer } from "./main.js" */

async function copyFrom(field) {
  try {
    await navigator.clipboard.writeText(field.value);
    return true;
  } catch { // on pages of other machines without encryption there is no clipboard
    field.select();
    return document.execCommand("copy");
  }
}

/** @param {Explorer} explorer */
export function listenForCitations(explorer) {
  get("cite-button").addEventListener("click", () => {
    const { server, state, citation, view } = explorer, { command } = server || citation;
    const parts = {
      link: server && `${location.origin}/${view}`,
      command: command && `${command}${state.own ? " --image FILE" : ""} --view "${view}"`,
      bibtex: citation.bibtex,
    };
    for (const [name, text] of Object.entries(parts)) {
      get(`cite-${name}`).value = text || "";
      get(`cite-${name}`).parentElement.hidden = !text;
    }
    get("cite-done").textContent = "";
    get("cite").showModal();
  });
  get("cite").addEventListener("click", async ({ target }) => {
    if (!target.dataset.copies) return;
    const copied = await copyFrom(get(target.dataset.copies));
    get("cite-done").textContent = copied ? `Copied: ${target.getAttribute("aria-label").replace("Copy the ", "")}.` : "Select the text and copy it by hand.";
  });
}
