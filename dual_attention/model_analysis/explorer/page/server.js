// A page that a server on this machine answers: other texts can be asked for.

function serve(explorer, server) {
  const form = get("ask"), prompt = get("prompt"), button = form.querySelector("button");
  form.hidden = false;
  prompt.value = server.text;
  const busy = (is) => {
    get("busy").hidden = !is;
    button.disabled = is;
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    busy(true);
    try {
      const answer = await fetch("record", {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Explorer-Token": server.token },
        body: JSON.stringify({ text: prompt.value }),
      });
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      explorer.complain("");
      explorer.state = { ...explorer.state, i: null, j: null, cell: null, x: 0, y: 0 };
      explorer.load(found.recording);
      explorer.remember();
    } catch (error) {
      const gone = error instanceof TypeError;
      explorer.complain(gone ? "The server does not answer; dat explore may have been stopped." : error.message);
    } finally {
      busy(false);
    }
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}
