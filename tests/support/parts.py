"""Files of checkpoints in parts, written anew with something else in them."""

import json
from collections.abc import Callable
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from dual_attention._base.checksums import read_checksums, sha256_of, write_checksums

Change = Callable[[dict[str, Tensor], dict[str, dict[str, list[int]]]], object]
"""Changes tensors, and the places of each in its whole, in the dicts that it is given."""


def rewritten(path: Path, change: Change) -> None:
    """Write a file of parts anew after a change, and its checksum, too."""
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (it is no dict)
    places = json.loads(metadata["DCP_SHARDING_INFO"])
    change(tensors, places)
    save_file(tensors, path, {**metadata, "DCP_SHARDING_INFO": json.dumps(places)})
    checkpoint = path.parents[1]
    write_checksums(checkpoint, {**read_checksums(checkpoint), f"shards/{path.name}": sha256_of(path)})
