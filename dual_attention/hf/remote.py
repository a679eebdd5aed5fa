"""Checkpoints that tell the Auto classes of transformers where their code is.

transformers copies the file that defines a class beside its checkpoint, if the class is registered for that. These
classes are more than one file; what is written instead imports them from this package, which must be installed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["WritesLoader"]

_FILE = "dual_attention_loader"

_LOADER = '''"""The classes of this checkpoint: pip install "dual-attention[hf]"."""

from dual_attention.hf import {names}

__all__ = [{quoted}]
'''


class WritesLoader:
    """A config or model whose ``save_pretrained`` can write what ``trust_remote_code=True`` needs."""

    _loaded_by: ClassVar[str | None] = None

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = None) -> None:
        """Let checkpoints name this class for an Auto class, so that it is found without importing this package first.

        Whoever loads them needs this package, and ``trust_remote_code=True``. The Auto class, or its name, is by
        default ``"AutoConfig"`` for configs, and for models the one that fits; an unknown one is a ``ValueError``.
        """
        import transformers

        auto_class = getattr(cls, "default_auto_class", "AutoConfig") if auto_class is None else auto_class
        name = auto_class if isinstance(auto_class, str) else auto_class.__name__
        if not hasattr(transformers, name):
            raise ValueError(f"auto_class: transformers has no {name!r}")
        cls._loaded_by = name

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        """As the method of transformers, with what :meth:`register_for_auto_class` asks for."""
        config: Any = getattr(self, "config", self)
        classes = {type(part)._loaded_by: type(part).__name__ for part in (config, self) if type(part)._loaded_by}
        if classes:
            known = getattr(config, "auto_map", None) or {}  # a config is saved by itself, and with its model
            config.auto_map = {**known, **{name: f"{_FILE}.{value}" for name, value in classes.items()}}
            names = sorted({value.rpartition(".")[2] for value in config.auto_map.values()})
            text = _LOADER.format(names=", ".join(names), quoted=", ".join(f'"{name}"' for name in names))
            Path(save_directory).mkdir(parents=True, exist_ok=True)
            Path(save_directory, f"{_FILE}.py").write_text(text, encoding="utf-8")
        return super().save_pretrained(save_directory, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
