"""A headless Chromium for tests of pages, with everything that it requests and complains of."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

from . import chromium


@contextmanager
def launched() -> Iterator[Any]:
    """A running browser; where there is none the test is skipped, unless it runs in CI."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        left_out("pages are tested with the package playwright")
    program = chromium.find_browser()
    if program is None:
        left_out(f"pages are tested with a browser, one of {', '.join(chromium.PROGRAMS)} or that of `make test`")
    with sync_playwright() as driver:
        # No sandbox: tests may run as root, as in containers; the pages are our own.
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def left_out(reason: str) -> NoReturn:
    """Skip a test, or fail it in CI."""
    if chromium.IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


class Visit:
    """A visitor with a page, who notes requests, complaints of the console and errors.

    Attributes:
        page: Playwright's.
        requests: addresses.
        complaints: of the console, and uncaught errors.
    """

    def __init__(self, browser: Any, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": 1360, "height": 860}, color_scheme=scheme)
        toured = {"name": "dat_tour", "value": "seen", "url": "http://127.0.0.1"}
        self.context.add_cookies([toured])  # the explorer's tour does not begin by itself
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))

    def open(self, address: str) -> Any:
        """Go there, and wait until the maps in view are drawn."""
        self.page.goto(address)
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait for what was asked for in this moment: a few frames."""
        self.page.evaluate(
            "() => new Promise(done => { let n = 0; (function f() { ++n > 9 ? done() : requestAnimationFrame(f) })() })"
        )

    def close(self) -> None:
        """Leave."""
        self.context.close()

    def inside(self, address: str) -> bool:
        """Whether all requests went to addresses that begin so, or held their answer themselves."""
        return all(url.startswith((address, "data:", "blob:")) for url in self.requests)


def pixels(visitor, selector="#main-map canvas"):
    """Colours of the canvas, as numbers of how often each is there."""
    return visitor.page.evaluate(
        """selector => {
            const canvas = document.querySelector(selector), found = {};
            const copy = document.createElement("canvas");
            [copy.width, copy.height] = [canvas.width, canvas.height];
            const pen = copy.getContext("2d", {willReadFrequently: true});
            pen.drawImage(canvas, 0, 0);
            const {data} = pen.getImageData(0, 0, copy.width, copy.height);
            for (let place = 0; place < data.length; place += 4) {
                const key = `${data[place]},${data[place + 1]},${data[place + 2]}`;
                found[key] = (found[key] || 0) + 1;
            }
            return found;
        }""",
        selector,
    )
