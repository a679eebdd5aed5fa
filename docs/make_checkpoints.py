"""Train the pairs of checkpoints that a release has: three games, on each of which a DAT is ahead of a Transformer.

python docs/make_checkpoints.py --out build/checkpoints

Three seeds of each model are trained on 2,000 images, about 50 minutes of a core, and the one with the highest
validation accuracy is kept, of both models alike: as a folder with its card, for ``dat predict FOLDER`` and ``dat
explore FOLDER``, and a zip file for each pair.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from dat.cli.main import main as dat
from dual_attention._base.checksums import checksums_of, write_checksums

GAMES = {"occurs": "20.9 ± 5.2", "xoccurs": "25.1 ± 4.1", "between": "14.9 ± 2.2"}
"""Mean leads in points by game, on shapes never trained on, from 1,000 images and ten seeds: studies/better_dat."""
MODELS = {"dat": ("dat-0+2-sym-squared-distance", 0.001), "transformer": ("transformer-128-h2-matched", 0.003)}
"""Preset and learning rate of each model, as chosen in that study, whose batches are smaller."""
N_TRAIN, SEEDS = 2000, 3
OBJECTS = {"val": "pentominoes, by which the seed was chosen", "test": "pentominoes"}
"""Words of a card for sets of images."""
KEPT = ("config.yaml", "model.safetensors", "result.json")
CARD = """# {name}: a model of the game *{game}*

{kind} of {parameters:,} parameters, trained on {n_train:,} images. Of {seeds} seeds it is the one with the highest
validation accuracy, {seed}. Its pair is `{other}`, trained in the same way, at a learning rate of its own.

| objects | right, % |
| --- | --- |
{rows}

Over ten seeds of 1,000 images the DAT is {lead} points ahead of the Transformer on hexominoes and stripes. CoRelNet
with softmax, which is not here, goes further. One model is an example, not a result.

```bash
dat predict {name}                            # an answer, and the relations or heads that made it
dat predict {name} "game {game} 2"
dat explore {name}
{train}
```

Weights are kept in half precision, and read as float32. The licence is that of the package, which draws the images.
"""


def trained(game: str, preset: str, seed: int, folder: Path, options: list[str]) -> dict[str, Any]:
    """The result of a run."""
    command = ["train", "relational-games", "--task", game, "--preset", preset, "--seed", str(seed)]
    if dat([*command, "--output.folder", str(folder.parent), "--output.name", folder.name, *options]):
        raise SystemExit(f"the training of {folder.name} failed")
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def keep(run: Path, folder: Path, card: str) -> None:
    """Copy what is needed of a run, its weights in half precision."""
    folder.mkdir(parents=True)
    for name in KEPT:
        shutil.copy(run / name, folder / name)
    weights = load_file(run / "model.safetensors")
    save_file(
        {name: x.to(torch.float16) if x.is_floating_point() else x for name, x in weights.items()}, folder / KEPT[1]
    )
    (folder / KEPT[1]).chmod(0o644)
    (folder / "README.md").write_text(card, encoding="utf-8")
    write_checksums(folder, checksums_of(folder))


def make_pair(game: str, out: Path, seeds: int, options: list[str]) -> None:
    """Train both models of a game, and keep the better seed of each."""
    for kind, (preset, rate) in MODELS.items():
        own = ["--optim.lr", str(rate), *options]  # of two the last holds
        with tempfile.TemporaryDirectory() as runs:
            results = {s: trained(game, preset, s, Path(runs) / f"{s}", own) for s in range(seeds)}
            seed = max(results, key=lambda s: results[s]["accuracy"]["val"])
            result, name = results[seed], f"{game}-{kind}"
            rows = "\n".join(f"| {OBJECTS.get(k, k)} | {100 * x:.1f} |" for k, x in result["accuracy"].items())
            words = "A DAT of relational heads with squared distances" if kind == "dat" else "A Transformer"
            train = f"dat train relational-games --task {game} --preset {preset} --seed {seed} {' '.join(own)}"
            other = next(f"{game}-{other}" for other in MODELS if other != kind)
            about = {key: result[key] for key in ("parameters", "n_train")}
            about |= {"name": name, "game": game, "kind": words, "seed": seed, "seeds": seeds, "other": other}
            keep(Path(runs) / f"{seed}", out / name, CARD.format(**about, rows=rows, lead=GAMES[game], train=train))
    both = [out / f"{game}-{kind}" for kind in MODELS]
    with tempfile.TemporaryDirectory() as place:
        for folder in both:
            shutil.copytree(folder, Path(place) / folder.name)
        shutil.make_archive(str(out / f"relational-games-{game}"), "zip", place)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=[*GAMES])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of which the best is kept")
    given, options = parser.parse_known_args(arguments)  # others are those of `dat train`
    if given.out.exists():
        raise SystemExit(f"--out: {given.out} exists")
    if given.seeds < 1:
        parser.error(f"argument --seeds: expected at least 1, got {given.seeds}")
    if "--data.n_train" not in options:
        options = ["--data.n_train", str(N_TRAIN), *options]
    for game in given.games:
        make_pair(game, given.out, given.seeds, options)


if __name__ == "__main__":
    main()
