"""The pairs of checkpoints of a release."""

import sys
import zipfile
from pathlib import Path

import pytest

from dual_attention._base.checksums import check_checksums
from tests.lab.cli.commands import printed
from tests.support.documents import ROOT

sys.path.append(str(ROOT / "docs"))
import make_checkpoints

TINY = ["--data.n_train", "40", "--data.n_val", "40", "--data.n_test", "40", "--data.n_heldout", "40"]


@pytest.mark.slow
def test_a_pair_answers_and_gives_its_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    make_checkpoints.main(["--out", str(out), "--games", "between", "--seeds", "2", *TINY, "--loop.epochs", "1"])
    with zipfile.ZipFile(out / "relational-games-between.zip") as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {"between-dat", "between-transformer"}
        archive.extractall(tmp_path / "unpacked")
    for name, reason in (("between-dat", "relation"), ("between-transformer", "sensory head")):
        folder = tmp_path / "unpacked" / name
        check_checksums(folder)
        said = printed(capsys, "predict", folder)
        assert "answer: " in said and f"  {reason} " in said
    with pytest.raises(SystemExit, match="exists"):
        make_checkpoints.main(["--out", str(out)])


def test_cards_give_the_leads_of_the_study():
    page = (ROOT / "studies" / "better_dat" / "README.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| Transformer | 10 |"))
    assert all(f"| +{lead} |" in row for lead in make_checkpoints.GAMES.values())
