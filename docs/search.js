// Guides before announcements and logs in the search of the site; Sphinx puts this into the page of results.
const LAST = /(ANNOUNCED|NOTEBOOK|PROTOCOL|CHANGELOG|CONTRIBUTING|docs\/(log|transformers-tests|reliability))$|^benchmarks\//;
const FIRST = /^(README|docs\/[a-z-]+|examples\/.*)$/;
const ASKED = (new URLSearchParams(location.search).get("q") || "").trim().toLowerCase();

var Scorer = {
  score: ([docname, title, , , score]) =>
    score +
    (LAST.test(docname) ? -40 : FIRST.test(docname) ? 20 : 0) +
    (ASKED && title.toLowerCase().includes(ASKED) ? 60 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// A browser fetches nothing from a disk, so there the excerpts come from a script that the build has written.
if (location.protocol === "file:") {
  const root = document.documentElement.dataset.content_root || "./";
  const texts = new Promise((done) => {
    const script = document.createElement("script");
    script.src = `${root}_static/search_texts.js`;
    script.onload = () => done(globalThis.SEARCH_TEXTS);
    document.head.append(script);
  });
  globalThis.fetch = async (url) => {
    const main = document.createElement("div");
    main.setAttribute("role", "main");
    main.textContent = (await texts)[url.slice(root.length).replace(/\.html$/, "")] || "";
    return { text: async () => main.outerHTML };
  };
}
