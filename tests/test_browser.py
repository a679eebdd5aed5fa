"""The browser and checkers of pages: nothing is left out in CI, and what is fetched is what was meant."""

import pytest

from tests.support import chromium, page_tools
from tests.support.browser import launched

BROWSER = (chromium, lambda: launched().__enter__(), "No browser, so pages are not tested", "pages are tested with")
CHECKERS = (
    page_tools,
    lambda: page_tools.tool("oxlint/bin/oxlint"),
    "Scripts of pages are not checked",
    "which `make test` fetches",
)


@pytest.mark.parametrize("in_ci", [False, True])
@pytest.mark.parametrize(("module", "use", "said", "left_out"), [BROWSER, CHECKERS], ids=["browser", "checkers"])
def test_only_ci_insists(module, use, said, left_out, in_ci, monkeypatch, capsys, tmp_path):
    def fetch():
        raise OSError("no network")

    for one in (chromium, module):
        monkeypatch.setattr(one, "IN_CI", in_ci)
    monkeypatch.setattr(chromium, "find_browser", lambda: None)
    monkeypatch.setattr(page_tools, "FOLDER", tmp_path / "none")
    monkeypatch.setattr(module, "fetch", fetch)
    assert module.main() == int(in_ci)
    assert capsys.readouterr().err == f"{said}: no network\n"
    with pytest.raises(pytest.fail.Exception if in_ci else pytest.skip.Exception, match=left_out):
        use()


def test_another_file_of_the_registry_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a file with the SHA-256"):
        chromium.unpack(b"PK", tmp_path, None)
    assert not list(tmp_path.iterdir())
