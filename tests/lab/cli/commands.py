"""Commands of ``dat`` in this process."""

import pytest

from dat.cli import main as cli

QUIET = ["--output.progress=false", "--output.tensorboard=false", "--machine.threads=1"]


def dat(*arguments: str) -> int:
    return cli.main(list(arguments))


def games(n_train: int = 8, others: int = 4, epochs: int = 1) -> list[str]:
    """Options of a small run of Relational Games."""
    sizes = {"n_train": n_train, **dict.fromkeys(("n_val", "n_test", "n_heldout"), others)}
    return ["--task=same", f"--loop.epochs={epochs}", *(f"--data.{name}={size}" for name, size in sizes.items())]


def printed(capsys, *arguments: object) -> str:
    """The output of a command that goes well; earlier output is dropped."""
    capsys.readouterr()
    assert dat(*map(str, arguments)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refusal(capsys, *arguments: object) -> str:
    """The error of a wrong command, which may say before what it has read; earlier output is dropped."""
    capsys.readouterr()
    assert dat(*map(str, arguments)) == 2
    return capsys.readouterr().err


def fails(capsys, *arguments: object) -> str:
    """The one line that is all that a wrong command prints."""
    capsys.readouterr()
    assert dat(*map(str, arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dat: error: ") and err.count("\n") == 1
    return err


def shown(capsys, *arguments: str) -> str:
    """What an option prints that ends the command, such as ``--help``."""
    with pytest.raises(SystemExit) as caught:
        dat(*arguments)
    assert not caught.value.code
    return capsys.readouterr().out
