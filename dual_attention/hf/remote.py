"""Checkpoints that tell the Auto classes of transformers, and readers, where their code is.

transformers copies the file that defines a class beside its checkpoint, if the class is registered for that. These
classes are more than one file; what is written instead imports them from this package, which must be installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

_FILE = "dual_attention_loader"

_LOADER = '''"""The classes of this checkpoint: pip install '.[hf]' in a clone of relational-attention."""

from dual_attention.hf import {names}

__all__ = [{quoted}]
'''

_README = """---
library_name: transformers
tags:
- relational-attention
---

# {name}

This folder holds a `{name}` of the package `dual_attention` for transformers. With the package installed
(`pip install '.[hf]'` in a clone of relational-attention, which is not on the package index yet), either of these
loads it:

```python
import dual_attention.hf  # tells transformers about such models
from transformers import {auto}

model = {auto}.from_pretrained("path/to/this/folder")
```

```python
from transformers import {auto}

model = {auto}.from_pretrained("path/to/this/folder", trust_remote_code=True)
```
"""


def auto_map(names: Mapping[str, str]) -> dict[str, str]:
    """The entry of ``config.json`` that tells where the class for each Auto class is."""
    return {auto: f"{_FILE}.{name}" for auto, name in names.items()}


class WritesLoader:
    """A config or model whose ``save_pretrained`` writes what ``trust_remote_code=True`` needs, and a README."""

    _loaded_by: ClassVar[str | None] = None

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = None) -> None:
        """Let checkpoints name this class for an Auto class, instead of the one that they name for it otherwise.

        Whoever loads them without importing this package first needs it installed, and ``trust_remote_code=True``. The
        Auto class, or its name, is by default ``"AutoConfig"`` for configs, and for models the one that fits; an
        unknown one is a ``ValueError``.
        """
        import transformers

        auto_class = getattr(cls, "default_auto_class", "AutoConfig") if auto_class is None else auto_class
        name = auto_class if isinstance(auto_class, str) else auto_class.__name__
        if not hasattr(transformers, name):
            raise ValueError(f"auto_class: transformers has no {name!r}")
        cls._loaded_by = name

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        """As the method of transformers; with the files that say how to load the folder, unless it is told already."""
        config: Any = getattr(self, "config", self)
        registered = {type(part)._loaded_by: type(part).__name__ for part in (config, self) if type(part)._loaded_by}
        names: dict[Any, str] = {**config.auto_classes, **registered}
        config.auto_map = {**(getattr(config, "auto_map", None) or {}), **auto_map(names)}
        folder = Path(save_directory)
        if not folder.is_file():  # about which transformers has something to say
            folder.mkdir(parents=True, exist_ok=True)
            kinds = sorted(set(names.values()))
            text = _LOADER.format(names=", ".join(kinds), quoted=", ".join(f'"{kind}"' for kind in kinds))
            (folder / f"{_FILE}.py").write_text(text, encoding="utf-8")
            if self is not config and not (folder / "README.md").exists():
                kind = type(self)
                auto = getattr(kind, "default_auto_class", "AutoModel")
                (folder / "README.md").write_text(_README.format(name=kind.__name__, auto=auto), encoding="utf-8")
        return super().save_pretrained(save_directory, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
