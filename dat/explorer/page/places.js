// Pages that show answers of the server, or those that a file holds; some are about the prediction after a chosen token.

import { onToken } from "./links.js";
import { get } from "./tables.js";

/** @import { Explorer, Recording } from "./main.js" */

export class AnswerPage {
  /** @type {AbortController | null} */
  running = null;

  /**
   * @param {Explorer} explorer
   * @param {string} name of its answers, as a file keeps them
   * @param {string} path of the server
   */
  constructor(explorer, name, path) {
    this.explorer = explorer;
    this.name = name;
    this.path = path;
  }

  isPossible() {
    const { server, kept } = this.explorer;
    return Boolean(kept[this.name] || (server && server.has(this.path)));
  }

  // Take the parts of an answer as they come; a question takes the place of the one before.
  /** @type {(body: object, take: (part: any) => void, failed: (error: Error) => void) => Promise<void>} */
  async follow(body, take, failed) {
    const { explorer } = this, running = new AbortController();
    if (this.running) this.running.abort();
    this.running = running;
    explorer.complain("");
    explorer.set({});
    try {
      for await (const part of explorer.server.follow(this.path, body, running.signal)) {
        if (this.running !== running) return;
        take(part);
      }
    } catch (error) {
      if (this.running === running) failed(error);
      if (error.name !== "AbortError") explorer.complain(error.message);
    } finally {
      if (this.running === running) {
        this.running = null;
        if (explorer.pages[explorer.page] === this) explorer.set({});
      }
    }
  }
}

export class PlacePage extends AnswerPage {
  /**
   * @param {Explorer} explorer
   * @param {string} name
   * @param {string} path
   * @param {string} prefix of its elements
   * @param {object} fresh what is unknown again once another token is chosen
   */
  constructor(explorer, name, path, prefix, fresh) {
    super(explorer, name, path);
    this.prefix = prefix;
    this.fresh = fresh;
    /** @type {AbortController | null} */
    this.asking = null;
    onToken(get(`${prefix}-text`), (place) => explorer.server && this.choose(place));
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

  // Show the answers to a question, unless it is the one that was asked last.
  /** @type {(wanted: object, answers: (body: object, signal: AbortSignal) => AsyncGenerator<any>) => Promise<void>} */
  async ask(wanted, answers) {
    const { explorer, name } = this, key = JSON.stringify(wanted), busy = get(`${this.prefix}-busy`);
    if (key === this.asked) return;
    this.asked = key;
    if (this.asking) this.asking.abort();
    const { signal } = (this.asking = new AbortController());
    busy.hidden = false;
    try {
      for await (const found of answers({ text: this.recording.source, ...wanted }, signal)) {
        if (key !== this.asked) return;
        explorer.kept[name] = found;
        if (explorer.page === name) explorer.show();
      }
      if (key !== this.asked) return;
      explorer.complain("");
    } catch (error) {
      if (error.name === "AbortError" || key !== this.asked) return;
      explorer.kept[name] = null;
      explorer.complain(error.message);
      if (explorer.page === name) explorer.show();
    }
    busy.hidden = true;
  }
}
