"""The browser and checkers of pages: nothing is left out in CI, and what is fetched is what was meant."""

import pytest

from tests.support import chromium, page_tools
from tests.support.browser import launched


@pytest.mark.parametrize("in_ci", [False, True])
def test_only_ci_insists_on_a_browser(in_ci, monkeypatch, capsys):
    def fetch():
        raise OSError("no network")

    monkeypatch.setattr(chromium, "IN_CI", in_ci)
    monkeypatch.setattr(chromium, "find_browser", lambda: None)
    monkeypatch.setattr(chromium, "fetch", fetch)
    assert chromium.main() == int(in_ci)
    assert capsys.readouterr().err == "No browser, so pages are not tested: no network\n"
    with pytest.raises(pytest.fail.Exception if in_ci else pytest.skip.Exception, match="pages are tested with"):
        launched().__enter__()


@pytest.mark.parametrize("in_ci", [False, True])
def test_only_ci_insists_on_checkers_of_scripts(in_ci, monkeypatch, capsys, tmp_path):
    def fetch():
        raise OSError("no network")

    monkeypatch.setattr(chromium, "IN_CI", in_ci)
    monkeypatch.setattr(page_tools, "IN_CI", in_ci)
    monkeypatch.setattr(page_tools, "FOLDER", tmp_path / "none")
    monkeypatch.setattr(page_tools, "fetch", fetch)
    assert page_tools.main() == int(in_ci)
    assert capsys.readouterr().err == "Scripts of pages are not checked: no network\n"
    with pytest.raises(pytest.fail.Exception if in_ci else pytest.skip.Exception, match="which `make test` fetches"):
        page_tools.tool("oxlint/bin/oxlint")


def test_another_file_of_the_registry_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a file with the SHA-256"):
        chromium.unpack(b"PK", tmp_path, None)
    assert not list(tmp_path.iterdir())
