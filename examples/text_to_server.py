"""From your own text to a server: train a language model, export it, adapt it to another text by LoRA, and serve it.

python examples/text_to_server.py [TEXT OTHER]
curl -d '{"prompt": "def "}' http://127.0.0.1:8000

Each text is a file or a pattern. By default the model reads the pages of docs/ and is adapted to the library's Python
code. All is written into the folder text-to-server, which must not exist.
"""

import json
import sys
from contextlib import suppress
from glob import glob
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

import dual_attention.hf  # noqa: F401  registers the models with transformers
from dat.cli.main import main as dat

ROOT = Path(__file__).resolve().parent.parent
CONTEXT = 128


def train_and_export(text: str, folder: Path, steps: int) -> Path:
    """Do what `dat train language --data.path TEXT ...` and `dat export RUN --out FOLDER` do in a shell."""
    keys = {"data.path": text, "output.folder": folder, "output.name": "run", "model.context": CONTEXT}
    keys |= {"loop.steps": steps, "loop.eval_every": steps, "optim.lr": 3e-3}
    train = ["train", "language", *(word for key, value in keys.items() for word in (f"--{key}", str(value)))]
    if dat(train) or dat(["export", str(folder / "run"), "--out", str(folder / "exported")]):
        sys.exit("the model was not trained or not exported")
    return folder / "exported"


def adapt(exported: Path, other: str, folder: Path, steps: int) -> tuple[float, float]:
    """Train an adapter on another text and merge it. Returns the loss on a part kept apart, before and after."""
    tokenizer, base = AutoTokenizer.from_pretrained(exported), AutoModelForCausalLM.from_pretrained(exported)
    text = "".join(Path(name).read_text(encoding="utf-8") for name in sorted(glob(other)))
    *rows, _ = torch.tensor(tokenizer(text, verbose=False).input_ids).split(CONTEXT)
    if len(rows) < 2:
        sys.exit(f"{other}: expected more text, got {len(text)} characters")
    kept = min(64, 1 + len(rows) // 10)
    held_out, train = torch.stack(rows[-kept:]), torch.stack(rows[:-kept])
    model = get_peft_model(base, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))

    def loss(batch: Tensor) -> Tensor:
        return model(input_ids=batch, labels=batch).loss

    with torch.no_grad():
        before = loss(held_out).item()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(train[torch.randint(len(train), (16,))]).backward()
        optimizer.step()
    with torch.no_grad():
        after = loss(held_out).item()
    model.save_pretrained(str(folder / "adapter"))  # small, for use with the exported model
    merged: Any = model.merge_and_unload()
    merged.save_pretrained(folder / "adapted")
    tokenizer.save_pretrained(folder / "adapted")
    print(f"loss on the other text: {before:.3f}, adapted {after:.3f} nats a byte")
    return before, after


def server(folder: Path, port: int = 8000) -> HTTPServer:
    """A server that continues the prompt of each POST request, on this machine only."""
    write = pipeline("text-generation", model=str(folder))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
            text = write(prompt, max_new_tokens=60, do_sample=True, temperature=0.7)[0]["generated_text"]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"text": text}).encode() + b"\n")

    return HTTPServer(("127.0.0.1", port), Handler)


def main(text: str = str(ROOT / "docs/*.md"), other: str = str(ROOT / "dual_attention/*.py")) -> None:
    folder = Path("text-to-server")
    adapt(train_and_export(text, folder, steps=500), other, folder, steps=300)
    print("waiting for prompts at http://127.0.0.1:8000; Ctrl-C ends")
    with suppress(KeyboardInterrupt), server(folder / "adapted") as waiting:
        waiting.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
