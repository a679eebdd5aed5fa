"""Commands of ``dat`` in this process."""

import pytest

from dat.cli import main as cli


def dat(*arguments: str) -> int:
    return cli.main(list(arguments))


def fails(capsys, *arguments: str) -> str:
    """The one line that a wrong command prints."""
    assert dat(*arguments) == 2
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
