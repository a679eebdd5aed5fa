"""Take the pictures of explorer.md: every page of the explorer in both colour schemes, in a headless browser.

    python docs/explorer_pictures.py

The model is the small one that ``dat explore`` trains on first use. Needs the package playwright and a Chromium.
"""

from __future__ import annotations

import importlib
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from dual_attention.model_analysis.explorer.example import example_model
from dual_attention.model_analysis.explorer.html import recording_page
from dual_attention.model_analysis.explorer.opening import open_session

FOLDER = Path(__file__).resolve().parent / "images" / "explorer"
TEXT = """\
The value of an object can change; the object itself can not. A function is an object, and its name is bound to it.
When the function is called, each name in the function is local to the function. café, 猫, سلام دنيا
"""
VIEWS = {
    "relations": "page=relations&heads=1&relation=7&view=raw&i=30&j=27",
    "attention": "page=attention&heads=2&head=1&i=30&j=27&pinned=page%3Dattention%26heads%3D3%26head%3D0",
    "symbols": "page=symbols&layer=3&part=1",
}


def take(browser: Any, address: str, scheme: str, file: Path) -> None:
    """Save a picture of a page, without loss."""
    context = browser.new_context(viewport={"width": 1240, "height": 780}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(1500)
    shot = page.screenshot()
    context.close()
    with Image.open(io.BytesIO(shot)) as picture:
        picture.convert("RGB").save(file, lossless=True, method=6)


def main() -> None:
    """Take all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    playwright = importlib.import_module("playwright.sync_api")
    session = open_session(str(example_model()), title="A small model of this library")
    with tempfile.TemporaryDirectory() as folder, playwright.sync_playwright() as driver:
        file = Path(folder) / "page.html"
        recording_page(session.record(TEXT)).save(file)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, view in VIEWS.items():
            for scheme in ("light", "dark"):
                take(browser, f"{file.as_uri()}#{view}", scheme, FOLDER / f"{name}-{scheme}.webp")
        browser.close()


if __name__ == "__main__":
    main()
