"""A process that measures items of a step, which its argument names: JSON with ``step``, ``setting`` and ``keys``.

It writes a line of JSON when it begins an item, and one with the result. An error on the device leaves a process in
which nothing works any more: it then ends, and another goes on with the next item.
"""

import json
import os
import sys
import threading
import time
from typing import Any

import torch

from benchmarks.gpu.plan import Item, LeftOut, Result, Setting, step_named

BROKEN = 3
"""Exit status after an error on the device."""


def measure(item: Item) -> tuple[Result, bool]:
    """The result of an item, and whether the device still works."""
    start = time.perf_counter()
    result: Result
    works = True
    try:
        result = {"status": "measured", **item.run()}
    except LeftOut as reason:
        result = {"status": "left out", "note": str(reason)}
    except torch.OutOfMemoryError:
        result = {"status": "left out", "note": "out of memory"}
    except Exception as error:
        message = " ".join(str(error).split())
        result = {"status": "failed", "note": f"{type(error).__name__}: {message}"[:500]}
        works = not ("CUDA error" in message or "device-side" in message)
    result["seconds"] = round(time.perf_counter() - start, 2)
    if works and torch.cuda.is_available():
        torch.cuda.empty_cache()
    return result, works


def end_with_the_parent() -> None:
    """Leave at once when the process that started this one has gone.

    Reads past Python's own buffer, whose lock the interpreter could not take when it ends.
    """
    while os.read(0, 1):
        pass
    os._exit(0)


def main() -> None:
    task: dict[str, Any] = json.loads(sys.argv[1])
    # Lines for the parent have the standard output to themselves.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    threading.Thread(target=end_with_the_parent, daemon=True).start()

    def tell(**what: Any) -> None:
        replies.write(json.dumps(what) + "\n")
        replies.flush()

    setting = Setting(**task["setting"])
    torch.set_num_threads(setting.threads)
    items = {item.key: item for phase in step_named(task["step"]).phases(setting) for item in phase.items}
    for key in task["keys"]:
        tell(begin=key)
        result, works = measure(items[key])
        tell(key=key, result=result)
        if not works:
            os._exit(BROKEN)


if __name__ == "__main__":
    main()
