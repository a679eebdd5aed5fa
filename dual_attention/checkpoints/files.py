"""Files of a checkpoint, in a folder or on the Hugging Face hub."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .._base.checksums import check_checksums
from .._base.extras import require
from .._base.files import first_line, read_json_object

CONFIG = "config.json"
ADAPTER = "adapter_config.json"
"""Configuration file of an adapter of PEFT."""
REACHED_WITHIN = 5.0
"""Seconds that the hub may take to answer, unless ``HF_HUB_ETAG_TIMEOUT`` says otherwise."""


class CheckpointFiles:
    """The files of one checkpoint, found by name; files on the hub are fetched when they are needed.

    The hub is asked once whether it can be reached, since ``huggingface_hub.hf_hub_download`` tries for half a
    minute for every file that is not cached. If it cannot, files come from its cache on this machine. To read a folder
    huggingface_hub is not needed.

    Args:
        name_or_path: a folder, or else the name of a repository on the hub, such as ``"user/model"``.
        download: further arguments of ``huggingface_hub.hf_hub_download``, for instance ``revision``.
    """

    def __init__(self, name_or_path: str | Path, **download: Any) -> None:
        self.name = str(name_or_path)
        self.folder: Path | None = None
        self._download = download
        self._asked = False
        self._unreachable: Exception | None = None
        path = Path(os.path.expanduser(name_or_path))
        if path.is_dir():
            self.folder = path
        elif (
            path.is_file() or isinstance(name_or_path, Path) or not 1 <= len(path.parts) <= 2 or self.name[:1] in "./~"
        ):
            raise FileNotFoundError(f"{self.name}: expected the folder of a checkpoint or a name on the hub")

    def beside(self, name_or_path: str | Path, revision: str | None) -> CheckpointFiles:
        """Those of another checkpoint that this one names, downloaded in the same way."""
        own = ("revision", "subfolder", "local_dir")
        download = {name: value for name, value in self._download.items() if name not in own}
        return CheckpointFiles(name_or_path, revision=revision, **download)

    def find(self, filename: str, *, needed: bool = True) -> Path | None:
        """The path of a file on this machine, or None if the checkpoint has no such file.

        An ``OSError`` says whether the hub has no such checkpoint or, for a file that is needed, cannot be reached.
        """
        if self.folder is not None:
            path = self.folder / filename
            return path if path.is_file() else None
        hub = require("huggingface_hub", extra="hf")
        errors = require("huggingface_hub.errors", extra="hf")
        download = self._download
        try:
            if self._why_unreachable(filename) is not None:
                if download.get("force_download"):
                    raise self._not_here(filename) from self._unreachable
                download = {**download, "local_files_only": True}
            return Path(hub.hf_hub_download(self.name, filename, **download))
        except errors.LocalEntryNotFoundError as error:
            if not needed:
                return None
            raise self._not_here(filename, error) from error
        except errors.EntryNotFoundError:
            return None
        except errors.HFValidationError as error:
            raise FileNotFoundError(f"{self.name}: no such folder or name on the hub ({first_line(error)})") from error
        except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
            raise FileNotFoundError(
                f"{self.name}: no such folder, nor a checkpoint on the hub, or it needs a token ({first_line(error)})"
            ) from error
        except Exception as error:  # of the network while a file is fetched, unless it is of this machine
            if isinstance(error, OSError | TypeError | ValueError) and not isinstance(error, errors.HfHubHTTPError):
                raise
            raise OSError(f"{self.name}: the hub did not give {filename} ({first_line(error)})") from error

    def _not_here(self, filename: str, error: Exception | None = None) -> OSError:
        reason = self._unreachable or error
        return OSError(
            f"{self.name}: there is no such folder here, no copy of its {filename} from the hub, and the hub cannot be "
            f"reached ({'' if reason is None else first_line(reason)})"
        )

    def _why_unreachable(self, filename: str) -> Exception | None:
        """Error that keeps the hub from being reached, if any; the hub is asked once, about the first file."""
        if self._asked or self._download.get("local_files_only"):
            return self._unreachable
        hub = require("huggingface_hub", extra="hf")
        constants = require("huggingface_hub.constants", extra="hf")
        errors = require("huggingface_hub.errors", extra="hf")
        endpoint = self._download.get("endpoint")
        url = hub.hf_hub_url(self.name, filename, revision=self._download.get("revision"), endpoint=endpoint)
        chosen = constants.HF_HUB_ETAG_TIMEOUT != constants.DEFAULT_ETAG_TIMEOUT
        timeout = constants.HF_HUB_ETAG_TIMEOUT if chosen else REACHED_WITHIN
        try:
            hub.get_hf_file_metadata(url, token=self._download.get("token"), timeout=timeout, endpoint=endpoint)
        except (errors.HfHubHTTPError, errors.LocalTokenNotFoundError):
            pass  # an answer of the hub, or an error that hf_hub_download will have as well
        except Exception as error:  # of the network
            self._unreachable = error
        self._asked = True
        return self._unreachable

    def config(self) -> dict[str, Any]:
        """Contents of ``config.json``; ``FileNotFoundError`` without one, ``ValueError`` if it holds no JSON object."""
        path = self.find(CONFIG)
        if path is None:
            raise FileNotFoundError(f"{self.name}: has no {CONFIG}")
        self.check(path)
        return read_json_object(path)

    def check(self, path: Path) -> None:
        """Compare a file with its checksum, if it is in a folder that has them, as runs do; errors name it."""
        if self.folder is not None:
            check_checksums(self.folder, [path.name])


def is_adapter(files: CheckpointFiles) -> bool:
    """Whether a folder or name holds an adapter of PEFT, and no model."""
    return files.find(CONFIG, needed=False) is None and files.find(ADAPTER, needed=False) is not None


def folder_of(name_or_path: Any, /, subfolder: str | None = None, **_: Any) -> Path | None:
    """The folder that transformers is asked to load from, by the arguments of ``from_pretrained``; None on the hub."""
    path = Path(name_or_path, subfolder or "") if isinstance(name_or_path, str | Path) else None
    return path if path is not None and path.is_dir() else None


def warn_of_misspelt(keys: Iterable[str], known: Collection[str]) -> None:
    """Warn of keys of a configuration for transformers, which may have any, that are not among ours but almost so."""
    for key in keys:
        near = [] if key in known else get_close_matches(key, known, n=1, cutoff=0.8)
        if near:
            warnings.warn(f"{key}: no argument of the model, and not used; did you mean {near[0]}?", stacklevel=2)
