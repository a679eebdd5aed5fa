"""Take the pictures of the explorer's pages, of the models that come with the package, in a headless browser.

    python docs/explorer_pictures.py [NAME ...]

Needs the package playwright and a Chromium.
"""

import argparse
import importlib
import io
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from PIL import Image

from dat.explorer.dictionaries import made_dictionary
from dat.explorer.example import EXAMPLES
from dat.explorer.exporting import Exporter
from dat.explorer.opening import with_beside
from dat.explorer.view_state import View

FOLDER = Path(__file__).resolve().parent / "images" / "explorer"
CORPUS = EXAMPLES["language"].path / "held-out.txt"
TEXT = EXAMPLES["language"].source
TEXTS = {
    "writes-light": "We have peace with all nations, and the people of the United",
    "patching-dark": "We have peace with all nations, and the people of the",
}
OTHER = "We have peace with all nations, and the Government of the"
RELATIONAL = "page=attention&layer=1&kind=relational"
VIEWS = {
    "relations-light": EXAMPLES["language"].view,
    "attention-dark": f"page=attention&layer=1&head=1&i=142&j=110&pinned={quote(RELATIONAL)}",
    "symbols-light": "page=symbols&layer=1&part=1",
    "effects-light": "page=effects",
    "writes-light": "page=writes",
    "card-light": "page=card&layer=0&relation=1",
    "interventions-light": "page=interventions&off=sa1.0_r0.1",
    "patching-dark": f"page=patching&other={quote(OTHER)}",
    "dictionary-light": "page=dictionary&layer=0&relation=1",
    "generate-light": "page=generate&tokens=40&seed=4&map=4",
    "model-light": "page=model",
}
TWO = "beside-light"
OF_IMAGES = {"vision-light": EXAMPLES["games"].view}


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


def exporters() -> dict[str, Exporter]:
    """What is shown, by the name of its picture."""
    session: Any = EXAMPLES["language"].open()
    *_, last = made_dictionary(session, {"text": CORPUS.read_text(encoding="utf-8")})
    session = replace(session, dictionary={**last["dictionary"], "source": CORPUS.name})
    found = {}
    for name, view in VIEWS.items():
        found[name] = Exporter(session, TEXTS.get(name, TEXT), View.of(view))
    rounded: Any = replace(EXAMPLES["language"].open(), title="the same with rounded weights")
    with torch.no_grad():
        for parameter in rounded.model.parameters():
            parameter.copy_((16 * parameter).round() / 16)
    found[TWO] = Exporter(with_beside(session, rounded), TEXT, View.of(f"{VIEWS['relations-light']}&model=2"))
    games = EXAMPLES["games"]
    return {**found, **{name: Exporter(games.open(), games.source, View.of(view)) for name, view in OF_IMAGES.items()}}


def main() -> None:
    """Take the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*VIEWS, TWO, *OF_IMAGES])}")
    names = parser.parse_args().names
    FOLDER.mkdir(parents=True, exist_ok=True)
    playwright = importlib.import_module("playwright.sync_api")
    with tempfile.TemporaryDirectory() as folder, playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, exporter in exporters().items():
            if names and name not in names:
                continue
            file = Path(folder) / f"{name}.html"
            exporter.write(file)
            take(browser, file.as_uri(), name.rpartition("-")[2], FOLDER / f"{name}.webp")
        browser.close()


if __name__ == "__main__":
    main()
