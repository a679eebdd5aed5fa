"""A side in a separate process: it answers requests, one line of JSON each, and idles in between.

    python worker.py               measures the published package, dual-attention 0.0.7, of this interpreter
    python worker.py --source DIR  measures the dual_attention under DIR

Run in another environment, it needs torch and einops there. Tensors travel in files. It ends with its input,
even in the middle of a request, so it never outlives the process that started it.
"""

import gc
import importlib.metadata
import json
import os
import queue
import sys
import threading
import types
from pathlib import Path
from typing import Any

PUBLISHED = "0.0.7"


def make_importable(source: str | None) -> None:
    """Let ``benchmarks.X`` be imported without its parent folder, which would offer this checkout's dual_attention."""
    here = Path(__file__).resolve().parent
    package = types.ModuleType("benchmarks")
    package.__path__ = [str(here)]
    sys.modules["benchmarks"] = package
    sys.path = [entry for entry in sys.path if Path(entry).resolve() != here]
    if source is not None:
        sys.path.insert(0, source)


def identify(source: str | None) -> dict[str, str]:
    """Versions of the measured package; an error if it is not the requested one."""
    import torch

    import dual_attention

    imported = Path(dual_attention.__file__ or "").resolve()
    if source is not None:
        if Path(source).resolve() not in imported.parents:
            raise RuntimeError(f"expected the dual_attention under {source}, got {imported}")
        version = dual_attention.__version__
    else:
        try:
            distribution = importlib.metadata.distribution("dual-attention")
        except importlib.metadata.PackageNotFoundError:
            raise RuntimeError(f"dual-attention=={PUBLISHED} is not installed for {sys.executable}") from None
        version = distribution.version
        installed = Path(str(distribution.locate_file("dual_attention/__init__.py"))).resolve()
        if version != PUBLISHED or imported != installed:
            raise RuntimeError(f"expected dual-attention=={PUBLISHED}, got {version} at {imported}")
    return {"dual_attention": version, "torch": torch.__version__, "python": sys.version.split()[0]}


class Server:
    """Requests that a worker answers, by name."""

    def __init__(self, source: str | None) -> None:
        self.source = source
        self.runner: Any = None

    def hello(self) -> dict[str, str]:
        return identify(self.source)

    def load(self, work: dict[str, Any], settings: dict[str, Any], tensors: str) -> None:
        import torch

        from benchmarks.runner import Runner
        from benchmarks.work import Settings, Work

        self.runner = None
        loaded = torch.load(tensors, weights_only=True)
        self.runner = Runner(Work.from_json(work), Settings(**settings), loaded)

    def values(self, quantity: str, path: str) -> None:
        import torch

        torch.save(self.runner.values(quantity), path)

    def sample(self, quantity: str, number: int) -> float:
        return self.runner.sample(quantity, number)

    def memory(self, quantity: str) -> dict[str, int | None]:
        return self.runner.memory(quantity)

    def traffic(self, quantity: str) -> int:
        return self.runner.traffic(quantity)

    def unload(self) -> None:
        """Forget the module, and give back its memory."""
        import torch

        self.runner = None
        gc.collect()
        torch.cuda.empty_cache()


def read(requests: Any, waiting: queue.SimpleQueue[str]) -> None:
    """Pass requests on as they come; at their end, when the asking process ends, stop at once."""
    for line in requests:
        waiting.put(line)
    os._exit(0)


def serve(server: Server, waiting: queue.SimpleQueue[str], replies: Any) -> None:
    """Answer requests one after another."""
    while True:
        request = json.loads(waiting.get())
        try:
            answer = {"answer": getattr(server, request["ask"])(**request["arguments"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


def main() -> None:
    source = sys.argv[2] if sys.argv[1:2] == ["--source"] else None
    make_importable(source)
    # Replies have the standard output to themselves; what libraries print goes to the standard error.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=read, args=(sys.stdin, waiting), daemon=True).start()
    serve(Server(source), waiting, replies)


if __name__ == "__main__":
    main()
