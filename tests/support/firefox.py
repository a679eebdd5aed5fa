"""A headless Firefox, asked by the protocol that it speaks itself, Marionette."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .browser import left_out

PROGRAMS = ("firefox", "firefox-esr")
SECONDS = 120


class Firefox:
    """A running Firefox, of which pages are opened, asked and pressed keys in."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._file, self._asked = connection, connection.makefile("rb"), 0
        self._answer()
        self.ask("WebDriver:NewSession", acceptInsecureCerts=False)

    def ask(self, command: str, **parameters: Any) -> Any:
        """The answer to a command of WebDriver; ``RuntimeError`` for one that fails."""
        self._asked += 1
        data = json.dumps([0, self._asked, command, parameters]).encode()
        self._connection.sendall(b"%d:%s" % (len(data), data))
        _, _, error, found = self._answer()
        if error:
            raise RuntimeError(f"{command}: {error['message']}")
        return found

    def _answer(self) -> Any:
        size = b""
        while (digit := self._file.read(1)) != b":":
            size += digit
        return json.loads(self._file.read(int(size)))

    def open(self, address: str, width: int = 1360, height: int = 860) -> None:
        """Go to a page, in a window of a size."""
        self.ask("WebDriver:SetWindowRect", width=width, height=height)
        self.ask("WebDriver:Navigate", url=address)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.ask("WebDriver:ExecuteScript", script=f"return {script}", args=[], sandbox=None)["value"]

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        presses = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("WebDriver:PerformActions", actions=[{"type": "key", "id": "keys", "actions": presses}])

    def wait(self, script: str) -> None:
        """Wait until an expression in the page is true."""
        end = time.monotonic() + SECONDS
        while not self.run(script):
            assert time.monotonic() < end, script
            time.sleep(0.1)


@contextmanager
def launched_firefox(folder: Path, **preferences: Any) -> Iterator[Firefox]:
    """A running Firefox with a new profile in a folder; without one the test is skipped, unless it runs in CI."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        left_out(f"pages are tested with a Firefox, one of {', '.join(PROGRAMS)}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = {"marionette.port": port, **preferences}
    text = "".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in lines.items())
    (folder / "user.js").write_text(text)
    arguments = [program, "--headless", "--marionette", "--no-remote", "--profile", str(folder)]
    running = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + SECONDS
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", port), SECONDS)
                break
            except OSError:
                assert time.monotonic() < end and running.poll() is None, "Firefox does not start"
                time.sleep(0.2)
        with connection:
            yield Firefox(connection)
    finally:
        running.terminate()
        running.wait()
