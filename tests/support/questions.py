"""Files of questions in the official layout of the mathematics data set."""

from pathlib import Path


def write_official(folder: Path, module: str = "algebra__linear_1d", n: int = 6, *, extrapolate: bool = False) -> Path:
    """A folder of the official layout whose questions are sums, all different."""
    splits = ["train-easy", "train-medium", "train-hard", "interpolate", *["extrapolate"] * extrapolate]
    for number, split in enumerate(splits):
        (folder / split).mkdir(parents=True, exist_ok=True)
        lines = [f"What is {number} + {i}?\n{number + i}\n" for i in range(n)]
        (folder / split / f"{module}.txt").write_text("".join(lines))
    return folder
