"""Take the pictures of the explorer's pages: each in both colour schemes, in a headless browser.

    dat train relational-games --preset dat-0+2-sym --task occurs --data.n_train 2000 --data.n_val 500 \\
        --data.n_test 500 --data.n_heldout 500 --loop.epochs 12 --output.folder runs --output.name occurs
    python docs/explorer_pictures.py --games runs/occurs

Texts are read by the small model that ``dat explore`` trains on first use. Needs the package playwright and a Chromium.
"""

from __future__ import annotations

import argparse
import importlib
import io
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from dat.explorer.dictionaries import made_dictionary
from dat.explorer.example import example_model
from dat.explorer.exporting import Exporter
from dat.explorer.opening import open_session
from dat.explorer.view_state import View

FOLDER = Path(__file__).resolve().parent / "images" / "explorer"
TEXT = """\
The value of an object can change; the object itself can not. A function is an object, and its name is bound to it.
When the function is called, each name in the function is local to the function. café, 猫, سلام دنيا
"""
CORPUS = Path(__file__).resolve().parent / "tour.md"
VIEWS = {
    "relations": "page=relations&layer=0&relation=7&view=raw&i=30&j=27",
    "attention": "page=attention&layer=1&head=1&i=30&j=27&pinned=page%3Dattention%26layer%3D1%26kind%3Drelational",
    "symbols": "page=symbols&layer=1&part=1",
    "interventions": "page=interventions&off=sa1.0_r0.3",
    "dictionary": "page=dictionary&layer=1&relation=2",
    "generate": "page=generate&tokens=30&seed=4&map=4",
    "model": "page=model",
}
OF_IMAGES = {"vision": "page=vision&layer=0&relation=0&i=2"}


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


def exporters(games: str) -> dict[str, Exporter]:
    """What is shown, by the name of its page."""
    session = open_session(str(example_model()), title="A small model of this library")
    *_, last = made_dictionary(session, {"text": CORPUS.read_text(encoding="utf-8")})  # pyright: ignore[reportArgumentType]
    session = replace(session, dictionary={**last["dictionary"], "source": CORPUS.name})
    images = open_session(games, title="A small model of images")
    found = {name: Exporter(session, TEXT, View.of(view)) for name, view in VIEWS.items()}
    return {**found, **{name: Exporter(images, "game occurs", View.of(view)) for name, view in OF_IMAGES.items()}}


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--games", required=True, help="run folder of a model of Relational Games")
    games = parser.parse_args().games
    FOLDER.mkdir(parents=True, exist_ok=True)
    playwright = importlib.import_module("playwright.sync_api")
    with tempfile.TemporaryDirectory() as folder, playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, exporter in exporters(games).items():
            file = Path(folder) / f"{name}.html"
            exporter.write(file)
            for scheme in ("light", "dark"):
                take(browser, file.as_uri(), scheme, FOLDER / f"{name}-{scheme}.webp")
        browser.close()


if __name__ == "__main__":
    main()
