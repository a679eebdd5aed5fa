// What stands for a document: elements by their ids, of which only what is written into them is kept.

/** @type {{ [id: string]: any }} */
export const elements = {};
const documentElement = { cloneNode: () => documentElement, querySelector: () => ({}), outerHTML: "" };
globalThis.document = /** @type {any} */ ({ documentElement, getElementById: (id) => (elements[id] ||= {}) });
