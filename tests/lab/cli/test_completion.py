"""``dat completion``: the script completes what a user has begun."""

import os
import shutil
import subprocess

import pytest

from dat.cli.completion import options_of_command, script
from dat.cli.main import every_command, main

CASES = [
    (["dat", "es"], {"estimate"}),
    (["dat", "train", "l"], {"language", "length"}),
    (["dat", "train", "language", "--optim.warm"], {"--optim.warmup_steps"}),
    (["dat", "train", "language", "--preset", "DAT-t"], {"DAT-tiny"}),
    (["dat", "reproduce", "relational-games", "--scale", "figure"], {"figure-2"}),
    (["dat", "generate", "run", "text", "--top"], {"--top_k", "--top_p"}),
    (["dat", "estimate", "--infer"], {"--inference"}),
    (["dat", "completion", "z"], {"zsh"}),
    (["dat", "train", "language", "no-such"], set()),
]


@pytest.fixture(scope="module")
def of_bash():
    return script("bash")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(("words", "found"), CASES, ids=lambda case: "-".join(case) if isinstance(case, list) else "")
def test_what_bash_completes(of_bash, words, found):
    quoted = " ".join(f"'{word}'" for word in words)
    call = f'COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _dat; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", of_bash + call], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == found and done.stderr == ""


ZSH = """
zmodload zsh/zpty && zpty shell zsh -f -i
zpty -w shell "PS1=; source '$1'; echo load''ed"
while zpty -r shell line && [[ $line != *loaded* ]]; do print -r -- $line; done
zpty -w -n shell $'dat estimate --infer\t\n'
while zpty -r shell line && [[ $line != *"not found"* ]]; do print -r -- $line; done
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh, in which the script is tried, is not installed")
def test_what_zsh_completes(tmp_path):
    """In a shell without a configuration of its own, at a terminal."""
    (tmp_path / "dat.zsh").write_text(script("zsh"))
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = ["zsh", "-f", "-c", ZSH, "zsh", str(tmp_path / "dat.zsh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert "dat estimate --inference" in done.stdout and "compdef" not in done.stdout


def test_every_command_has_options(of_bash):
    for command in every_command():
        assert "--help" in options_of_command(command)
        assert f'"{" ".join(command.words)} "*)' in of_bash


def test_the_command(capsys):
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
