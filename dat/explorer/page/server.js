// What a server on this machine is asked for, and its answers.

import { get } from "./tables.js";

/** @import { Explorer } from "./main.js" */

const GONE = "The server does not answer; dat explore may have been stopped.";

export class Server {
  token; paths; samples; command; run;
  prefix = ""; // of the model that is asked

  constructor(own) {
    Object.assign(this, own); // token, and what else there is to choose from
  }

  async request(path, body, signal) {
    const bytes = body instanceof Blob;
    let answer;
    try {
      answer = await fetch(path, {
        method: "POST", signal, body: bytes ? body : JSON.stringify(body),
        headers: { "Content-Type": bytes ? "application/octet-stream" : "application/json", "X-Explorer-Token": this.token },
      });
    } catch (error) {
      throw error instanceof TypeError ? new Error(GONE) : error;
    }
    if (!answer.ok) throw new Error((await answer.json()).error);
    return answer;
  }

  has(path) {
    return this.paths.includes(this.prefix + path);
  }

  async ask(path, body, signal, prefix = this.prefix) {
    return (await this.request(prefix + path, body, signal)).json();
  }

  // The recording of a text, of a sample, or of an image's file.
  async record(reads, source) {
    const [path, body] = reads === "text" ? ["record", { text: source }] : source instanceof Blob ? ["image", source] : ["sample", { sample: source }];
    return (await this.ask(path, body, undefined, "")).recording;
  }

  // Answers that come one after the other.
  async *follow(path, body, signal) {
    const answer = await this.request(this.prefix + path, body, signal), reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let kept = "";
    for (;;) {
      let found;
      try {
        found = await reader.read();
      } catch (error) {
        throw error instanceof TypeError ? new Error(GONE) : error;
      }
      if (found.done) return;
      const lines = (kept + found.value).split("\n");
      kept = lines.pop();
      for (const line of lines) {
        const part = JSON.parse(line);
        if (part.error) throw new Error(part.error);
        yield part;
      }
    }
  }
}

/** @param {Explorer} explorer */
export function markPrompt(explorer) {
  const due = get("prompt").value !== explorer.recording.source, button = get("ask").querySelector("button");
  button.classList.toggle("due", due);
  button.textContent = due ? "Show this text" : "Show";
}

// The form of the text; what is recorded of it takes the place of what the page shows.
/** @param {Explorer} explorer */
export function listenForTexts(explorer) {
  const form = get("ask"), prompt = get("prompt");
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    explorer.replace("text", prompt.value);
  });
  // What stands in the box is not yet what the page shows.
  prompt.addEventListener("input", () => markPrompt(explorer));
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}
