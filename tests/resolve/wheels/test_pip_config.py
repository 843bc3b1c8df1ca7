"""pip's settings as uv's variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.resolve.wheels.index.pip_config import make_uv_environ, read_pip_settings


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose pip has no file but those that a test writes."""
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_DIRS": str(tmp_path / "xdg"),
        "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"),
    }


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_later_files_and_variables_win(tmp_path: Path, home: dict[str, str]) -> None:
    write(tmp_path / "xdg/pip/pip.conf", "[global]\nindex-url = a\nextra-index-url = b\n  c\n")
    assert read_pip_settings(home)["index-url"] == "a"
    write(tmp_path / ".config/pip/pip.conf", "[global]\nindex_url = d\n[install]\nfind-links = /w\n")
    assert read_pip_settings(home)["index-url"] == "d"
    write(tmp_path / "pip.conf", "[install]\nindex-url = e\n")
    found = read_pip_settings(home)
    assert (found["index-url"], found["extra-index-url"].split(), found["find-links"]) == ("e", ["b", "c"], "/w")
    assert read_pip_settings({**home, "PIP_INDEX_URL": "f"})["index-url"] == "f"
    assert "index-url" not in read_pip_settings({**home, "PIP_CONFIG_FILE": "/dev/null"})


def test_mapping(tmp_path: Path, home: dict[str, str]) -> None:
    own = {
        **home,
        "PIP_INDEX_URL": "https://u:p@index.example.com/simple",
        "PIP_EXTRA_INDEX_URL": "https://a.example.com/s  https://b.example.com/s",
        "PIP_FIND_LINKS": "/w1 /w2",
        "PIP_TRUSTED_HOST": "index.example.com",
        "PIP_CERT": "/ca.pem",
    }
    result = make_uv_environ(own)
    assert result["UV_INDEX_URL"] == "https://u:p@index.example.com/simple"
    assert result["UV_EXTRA_INDEX_URL"] == "https://a.example.com/s https://b.example.com/s"
    assert result["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert result["UV_FIND_LINKS"] == "/w1,/w2"
    assert result["UV_INSECURE_HOST"] == "index.example.com"
    assert result["SSL_CERT_FILE"] == "/ca.pem"
    assert make_uv_environ({**own, "SSL_CERT_FILE": "/other.pem"})["SSL_CERT_FILE"] == "/other.pem"
    assert make_uv_environ(own, ca_file=Path("/company.pem"))["SSL_CERT_FILE"] == "/company.pem"


@pytest.mark.parametrize("name", ["UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_CONFIG_FILE"])
def test_uv_s_own_settings_win_as_a_whole(home: dict[str, str], name: str) -> None:
    own = {**home, name: "x", "PIP_EXTRA_INDEX_URL": "https://a.example.com/s"}
    assert "UV_EXTRA_INDEX_URL" not in make_uv_environ(own)


def test_no_index_and_what_belongs_to_this_machine_s_python(home: dict[str, str]) -> None:
    result = make_uv_environ(
        {**home, "PIP_NO_INDEX": "true", "VIRTUAL_ENV": "/v", "UV_PYTHON": "3.8", "UV_NO_BINARY": "1"}
    )
    assert result["UV_NO_INDEX"] == "1"
    assert not {"VIRTUAL_ENV", "UV_PYTHON", "UV_NO_BINARY"} & set(result)


def test_files_that_cannot_be_read_count_for_nothing(tmp_path: Path, home: dict[str, str]) -> None:
    (tmp_path / "pip.conf").write_bytes(b"\xff\xfe not [ini")
    assert read_pip_settings(home) == read_pip_settings({**home, "PIP_CONFIG_FILE": str(tmp_path / "absent")})
