"""Write `signatures.json`: the parameters of everything public in the published package `dual-attention==0.0.7`.

Run as `make_golden.py` is; `tests/test_signatures.py` compares this library with it. These are facts about an interface
(names, order and defaults), no code.
"""

import importlib
import inspect
import json
import pkgutil
from pathlib import Path

from published import PUBLISHED, require_published

HERE = Path(__file__).resolve().parent


def parameters(function):
    """The name of each parameter and, if there is one, its default; all can be given by position and by name."""
    described = []
    for name, parameter in inspect.signature(function).parameters.items():
        assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD, (function, name)
        described.append([name] if parameter.default is parameter.empty else [name, parameter.default])
    return described


def public(owner, module):
    """Functions and classes that are defined in a module, or methods of a class of it, by name."""
    for name, value in vars(owner).items():
        if not name.startswith("_") and getattr(value, "__module__", None) == module and callable(value):
            yield name, value


def signatures():
    """Constructors, methods and functions of all modules by their dotted names."""
    found = {}
    package = importlib.import_module("dual_attention")
    for about in pkgutil.iter_modules(package.__path__):
        if about.name == "hf":  # its classes take whatever the models take
            continue
        module = importlib.import_module(f"dual_attention.{about.name}")
        for name, value in public(module, module.__name__):
            found[f"{about.name}.{name}"] = parameters(value)
            if inspect.isclass(value):
                for method, function in public(value, module.__name__):
                    found[f"{about.name}.{name}.{method}"] = parameters(function)
    return dict(sorted(found.items()))


def main():
    require_published()
    found = signatures()
    lines = [f"  {json.dumps(name)}: {json.dumps(described)}" for name, described in found.items()]
    text = "{\n" + ",\n".join([f'  "published": "dual-attention=={PUBLISHED}"', *lines]) + "\n}\n"
    (HERE / "signatures.json").write_text(text, encoding="utf-8")
    print(f"signatures.json    {len(found):3} signatures {len(text) / 1e3:7.1f} kB")


if __name__ == "__main__":
    main()
