"""The page of the site that compares today's public names with those of the published package, dual-attention 0.0.7."""

import functools
import importlib
import inspect
import json
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from public_names import PACKAGE, public_names

PAGE = "docs/reference/since-0-0-7"
SIGNATURES = Path(__file__).resolve().parent.parent / "tests/golden/signatures.json"
TEXT = """# Since 0.0.7

After this page you know which arguments of each class, method and function of
[`dual-attention` 0.0.7](../migrating.md) changed, and which names are new. The page compares the recorded signatures of
0.0.7 with today's.

Of {names} names {same} take the same arguments, {more} take more or require fewer, and {gone} are gone. Arguments with
another default: {defaults}. Arguments keep their positions, and new ones of constructors are keyword-only.
`dual_attention.hf`, whose classes pass their arguments on, is not compared. What gives other numbers is in
[the changelog](../../CHANGELOG.md#differences-from-dual-attention-007).

"""
INSTEAD = {
    "attention_utils.apply_rotary_emb": "apply_rotary",
    "attention_utils.compute_causal_mask": "causal_mask",
    "attention_utils.precompute_freqs_cis": "rotary_tables",
    "model_utils.get_activation_function": "activation_function",
}
"""What `dual_attention.functional` has for helpers that are gone."""
Recorded = list[list[Any]]


class Change(NamedTuple):
    """What became of a name.

    Attributes:
        gone: whether it is no longer there.
        optional: arguments that had to be given, and their defaults.
        defaults: arguments with another default, and both.
        new: arguments that are new.
    """

    gone: bool = False
    optional: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = (("optional now", self.optional), ("other default", self.defaults), ("new", self.new))
        told = [f"{title}: {', '.join(f'`{name}`' for name in names)}" for title, names in parts if names]
        return "gone" if self.gone else "; ".join(told) or "as it was"


def recorded() -> dict[str, Recorded]:
    """The parameters of each name of 0.0.7."""
    names = json.loads(SIGNATURES.read_text(encoding="utf-8"))
    names.pop("published")
    return names


def change(name: str, published: Recorded) -> Change:
    """Compare a name of 0.0.7, such as ``attention.Attention.forward``, with today's."""
    module, *path = name.split(".")
    try:
        value: Any = functools.reduce(getattr, path, importlib.import_module(f"{PACKAGE}.{module}"))
    except (ImportError, AttributeError):
        return Change(gone=True)
    today = list(inspect.signature(value).parameters.values())
    # `generate`, a function, calls `self` the model
    pairs = [(new, old[1:]) for new, old in zip(today, published, strict=False) if old[0] != "self"]
    return Change(
        optional=tuple(f"{new.name}={new.default!r}" for new, old in pairs if not old and new.default is not new.empty),
        defaults=tuple(
            f"{new.name}={new.default!r}, was {old[0]!r}" for new, old in pairs if old and new.default != old[0]
        ),
        new=tuple(new.name for new in today[len(published) :]),
    )


def page() -> str:
    """Markdown of the page."""
    old, names = recorded(), public_names()
    changes = {name: change(name, parameters) for name, parameters in old.items()}
    modules = {name: module for module, values in names.items() for name in values}
    kinds = Counter("gone" if found.gone else "more" if any(found[1:]) else "same" for found in changes.values())
    counts = {"names": len(old), "defaults": sum(len(found.defaults) for found in changes.values()), **kinds}
    parts = [TEXT.format(**counts)]
    for module, group in groupby(changes, lambda name: name.partition(".")[0]):
        parts.append(f"## `{PACKAGE}.{module}`\n\n| 0.0.7 | today |\n| --- | --- |\n")
        for name in group:
            _, owner, *method = name.split(".")
            linked = not method and owner in modules
            shown = f"{{py:obj}}`~{modules[owner]}.{owner}`" if linked else f"`{'.'.join([owner, *method])}`"
            instead = f"; see {{py:obj}}`~{PACKAGE}.functional.{INSTEAD[name]}`" if name in INSTEAD else ""
            parts.append(f"| {shown} | {changes[name]}{instead} |\n")
        parts.append("\n")
    known = {name.split(".")[1] for name in old}
    parts.append("## New names\n\n")
    for module, values in names.items():
        new = [name for name in values if name not in known and not name.endswith("_HFHub")]
        links = ", ".join(f"{{py:obj}}`~{module}.{name}`" for name in new)
        parts.append(f"**{{py:mod}}`{module}`**: {links}\n\n" if new else "")
    return "".join(parts)


def write(app: Any) -> None:
    """Write the page among the sources, beside the reference, unless it is there."""
    path = Path(app.srcdir, f"{PAGE}.md")
    text = page()
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
