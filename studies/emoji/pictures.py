"""Folders of labelled emoji by two vendors, from two npm packages that the user has packed.

    npm pack emoji-datasource-twitter@16.0.0 emoji-datasource-google@16.0.0 --ignore-scripts
    python -m studies.emoji.pictures . --out runs/emoji

Images of Twitter (Twemoji) are licensed CC BY 4.0, those of Google (Noto Emoji) under the Apache License 2.0, as the
READMEs of the packages say; the packages' own code and data are MIT.
"""

import argparse
import hashlib
import json
import sys
import tarfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dat.data.images.pictures import decoded

VENDORS = ("twitter", "google")
"""The hand that is trained on, and the new one."""
VERSION = "16.0.0"
EMOJI = 1911
"""Emoji of that version; both vendors draw all of them."""
SIZE = 32
"""Width and height at which pictures are compared, those of the models."""
LEFT_OUT = "Component"
"""Category of five swatches of skin colours."""
HELD_OUT = 0.2
"""Share of identities that are not trained on."""
LEAST = 12
"""Identities of the smallest subcategory that is a class."""
PARTS = {(0, False): "train", (0, True): "test", (1, False): "hand", (1, True): "both"}
"""Folders of pictures, by the vendor and by whether their identity is held out."""

JOINERS = ("FE0F", "200D", "2640", "2642", "27A1")
"""Code points that make a variant of an emoji: woman, man, facing right."""
PERSONS = {"1F468": "1F9D1", "1F469": "1F9D1", "1F466": "1F9D2", "1F467": "1F9D2", "1F474": "1F9D3", "1F475": "1F9D3"}
"""Man and woman, boy and girl, old man and old woman; and the persons of no sex whose variants they are."""


class Emoji(NamedTuple):
    """An emoji: its code points, its classes, and its picture by each vendor."""

    code: str
    category: str
    subcategory: str
    pictures: tuple[bytes, ...]

    @property
    def identity(self) -> str:
        """What it shows, as code points: variants by sex and direction are one identity, and are split together."""
        points = [PERSONS.get(point, point) for point in self.code.split("-") if point not in JOINERS]
        return "-".join(points) or self.code


def read_package(folder: Path, vendor: str) -> tuple[list[Any], dict[str, bytes]]:
    """What a package says of its emoji, and its pictures by file name.

    Raises:
        FileNotFoundError: the folder has no such archive.
        ValueError: it cannot be read, is another package or version, or lacks something.
    """
    name = f"emoji-datasource-{vendor}"
    path = folder / f"{name}-{VERSION}.tgz"
    if not path.is_file():
        others = ", ".join(sorted(other.name for other in folder.glob(f"{name}*"))) or "none"
        raise FileNotFoundError(f"packages: expected {path.name} in {folder}, as npm pack writes it, found {others}")
    pictures = f"package/img/{vendor}/64/"
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                wanted = member.name.startswith(pictures) or member.name in (
                    "package/package.json",
                    "package/emoji.json",
                )
                file = archive.extractfile(member) if wanted else None
                if file is not None:
                    files[member.name.removeprefix(pictures)] = file.read()
        about, emoji = (json.loads(files.pop(f"package/{part}.json")) for part in ("package", "emoji"))
        given = (about["name"], about["version"])
    except (tarfile.TarError, OSError, EOFError, zlib.error, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"packages: {path}: expected {name} {VERSION}, cannot be read ({error})") from error
    if given != (name, VERSION):
        raise ValueError(f"packages: {path}: expected {name} {VERSION}, got {' '.join(map(str, given))}")
    return emoji, files


def read_emoji(folder: Path) -> list[Emoji]:
    """The emoji of both packages, without swatches.

    Raises:
        FileNotFoundError, ValueError: as :func:`read_package`.
        ValueError: the packages disagree, or a picture is missing or none.
    """
    packages = {vendor: read_package(folder, vendor) for vendor in VENDORS}
    (listed, _), (other, _) = packages.values()
    if listed != other or len(listed) != EMOJI:
        raise ValueError(
            f"packages: expected {EMOJI:,} emoji, the same in both, got {len(listed):,} and {len(other):,}"
        )
    found = []
    for line in listed:
        drawn = tuple(files.get(line["image"], b"") for _, files in packages.values())
        for vendor, data in zip(VENDORS, drawn, strict=True):
            try:
                decoded(data, SIZE, SIZE, grey=False)
            except ValueError as error:
                raise ValueError(f"packages: emoji-datasource-{vendor}: {line['image']}: {error}") from error
        if line["category"] != LEFT_OUT:
            found.append(Emoji(line["unified"], line["category"], line["subcategory"], drawn))
    return found


def without_equals(emoji: Sequence[Emoji]) -> list[Emoji]:
    """The emoji less those that either vendor draws like an earlier one: a few flags, and persons of no sex."""
    seen: set[tuple[int, bytes]] = set()
    kept = []
    for one in emoji:
        pixels = {
            (vendor, decoded(data, SIZE, SIZE, grey=False)[0].numpy().tobytes())
            for vendor, data in enumerate(one.pictures)
        }
        if not pixels & seen:
            kept.append(one)
        seen |= pixels
    return kept


def held_out(identity: str) -> bool:
    """Whether an identity is not trained on: told by a hash of it, so every machine splits alike."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4], "big") < HELD_OUT * 2**32


def labelled(emoji: Sequence[Emoji], label: str) -> dict[str, list[Emoji]]:
    """Emoji by their category or subcategory; subcategories of fewer than LEAST identities on one side are left out."""
    classes: dict[str, list[Emoji]] = defaultdict(list)
    for one in emoji:
        classes[getattr(one, label).replace("&", "and").replace(" ", "-").lower()].append(one)
    sides = {name: Counter(held_out(one.identity) for one in found) for name, found in classes.items()}
    return {name: found for name, found in classes.items() if sides[name][False] >= LEAST and sides[name][True] >= 2}


def files_of(emoji: Mapping[str, Sequence[Emoji]]) -> Iterator[tuple[str, bytes]]:
    """Paths of pictures in the folder of a labelling, and their contents."""
    for name, found in emoji.items():
        for one in found:
            for vendor, data in enumerate(one.pictures):
                yield f"{PARTS[vendor, held_out(one.identity)]}/{name}/{one.code.lower()}.png", data


def write_folders(packages: Path, out: Path) -> str:
    """Write the folders ``category`` and ``subcategory``; and say what they hold.

    Raises:
        FileExistsError: if there is something already.
        FileNotFoundError, ValueError: as :func:`read_emoji`.
    """
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"out: expected a folder that is empty or not there, got {out}")
    everything = read_emoji(packages)
    emoji, lines = without_equals(everything), []
    lines.append(f"{len(emoji):,} emoji; {len(everything) - len(emoji):,} left out that a vendor draws like another")
    for label in ("category", "subcategory"):
        classes = labelled(emoji, label)
        counts: Counter[str] = Counter()
        for path, data in files_of(classes):
            file = out / label / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            counts[path.partition("/")[0]] += 1
        sizes = ", ".join(f"{counts[part]:,} in {part}" for part in PARTS.values())
        lines.append(f"{out / label}: {len(classes)} classes, {sizes}")
    lines.append("Twitter's images: Twemoji, CC BY 4.0. Google's: Noto Emoji, Apache License 2.0.")
    return "\n".join(lines)


def main() -> int:
    """Run the command line; 1 after an error."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.emoji.pictures", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("packages", type=Path, help="folder with the two archives that npm pack wrote")
    parser.add_argument("--out", type=Path, default=Path("runs/emoji"), help="folder to write")
    options = parser.parse_args()
    try:
        print(write_folders(options.packages, options.out))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
