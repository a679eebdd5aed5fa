"""Where the files of a checkpoint are: in a folder, or on the Hugging Face hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

__all__ = ["CONFIG", "CheckpointFiles"]

CONFIG = "config.json"


class CheckpointFiles:
    """The files of one checkpoint, found by name; those on the hub are fetched when they are asked for.

    Args:
        name_or_path: a folder, or else the name of a repository on the hub, such as ``"user/model"``.
        download: further arguments of :func:`huggingface_hub.hf_hub_download`, for instance ``revision``.

    Raises:
        FileNotFoundError: if it is the path of something that is not there, or that is a file.
    """

    def __init__(self, name_or_path: str | Path, **download: Any) -> None:
        self.name = str(name_or_path)
        self.folder: Path | None = None
        self._download = download
        path = Path(name_or_path).expanduser()
        if path.is_dir():
            self.folder = path
        elif (
            path.is_file() or isinstance(name_or_path, Path) or not 1 <= len(path.parts) <= 2 or self.name[:1] in "./~"
        ):
            raise FileNotFoundError(f"{self.name}: expected the folder of a checkpoint or a name on the hub")

    def find(self, filename: str) -> Path | None:
        """The path of a file on this machine, or None if the checkpoint has no such file.

        Raises:
            OSError: if the hub has no such checkpoint or cannot be reached; the message says which.
        """
        try:
            return self._find(filename)
        except LocalEntryNotFoundError as error:
            raise OSError(
                f"{self.name}: there is no such folder here, and {filename} of this name on the hub is neither in the "
                f"local cache nor can it be fetched: the hub cannot be reached ({first_line(error)})"
            ) from error

    def find_cached(self, filename: str) -> Path | None:
        """As :meth:`find`, but None as well if the hub cannot be reached."""
        try:
            return self._find(filename)
        except LocalEntryNotFoundError:
            return None

    def _find(self, filename: str) -> Path | None:
        if self.folder is not None:
            path = self.folder / filename
            return path if path.is_file() else None
        try:
            return Path(hf_hub_download(self.name, filename, **self._download))
        except LocalEntryNotFoundError:
            raise
        except EntryNotFoundError:
            return None
        except HFValidationError as error:
            raise FileNotFoundError(
                f"{self.name}: there is no such folder, and it is no name on the hub either ({first_line(error)})"
            ) from error
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:
            raise FileNotFoundError(
                f"{self.name}: there is no such folder here, and no checkpoint of this name on the hub, or it needs a "
                f"token ({first_line(error)})"
            ) from error
        except HfHubHTTPError as error:
            raise OSError(f"{self.name}: the hub did not give {filename} ({first_line(error)})") from error

    def config(self) -> dict[str, Any]:
        """What ``config.json`` holds.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if it holds no JSON object.
        """
        path = self.find(CONFIG)
        if path is None:
            raise FileNotFoundError(f"{self.name}: has no {CONFIG}")
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: is not JSON ({error})") from error
        if not isinstance(config, dict):
            raise ValueError(f"{path}: expected a JSON object, got {type(config).__name__}")
        return config


def first_line(error: Exception) -> str:
    """The beginning of a message that may be long."""
    return str(error).strip().partition("\n")[0]
