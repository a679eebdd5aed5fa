"""The folder of what is kept between calls."""

import pwd
from pathlib import Path

import pytest

from dual_attention._base.files import cache_folder


def test_where_it_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("DUAL_ATTENTION_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("DUAL_ATTENTION_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/relational-attention")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "relational-attention"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "relational-attention"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_folder() == Path("/local/relational-attention")


def test_a_user_without_a_home_is_told_what_to_name(monkeypatch):
    def unknown(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "DUAL_ATTENTION_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(FileNotFoundError, match="no such home folder; name a folder with DUAL_ATTENTION_CACHE"):
        cache_folder()
