// What a server on this machine is asked for, and its answers.

const GONE = "The server does not answer; dat explore may have been stopped.";

class Server {
  constructor(own) {
    Object.assign(this, own); // token, text, and what else there is to choose from
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

  async ask(path, body, signal) {
    return (await this.request(path, body, signal)).json();
  }

  // Answers that come one after the other.
  async *follow(path, body, signal) {
    const answer = await this.request(path, body, signal), reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
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

// The form of the text; what is recorded of it takes the place of what the page shows.
function listenForTexts(explorer) {
  const form = get("ask"), prompt = get("prompt"), button = form.querySelector("button");
  form.hidden = false;
  prompt.value = explorer.server.text;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    get("busy").hidden = false;
    try {
      const text = prompt.value, { recording } = await explorer.server.ask("record", { text });
      explorer.server.text = text;
      explorer.complain("");
      explorer.replace(recording);
    } catch (error) {
      explorer.complain(error.message);
    } finally {
      get("busy").hidden = true;
      button.disabled = false;
    }
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}
