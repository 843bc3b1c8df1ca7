"""The example of the package's README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import imgtool_debian_layers
from tests.debian_layers.packages import archive, make_archive, needs_apt, offer, system

__all__ = ["archive"]  # a fixture
README = Path(imgtool_debian_layers.__file__).with_name("README.md")


@needs_apt
def test_the_example_makes_a_layer(
    archive: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, folder = archive
    package = offer(folder)
    monkeypatch.chdir(folder)
    base = system({"/etc/apt/sources.list": f"deb [trusted=yes] {url} ./\n"})
    Path("base.tar").write_bytes(make_archive(base))
    (example,) = re.findall(r"```python\n(.+?)```", README.read_text(), re.DOTALL)
    exec(example, {"download": lambda address, _: folder / address.removeprefix(f"{url}/")})
    assert "f usr/bin/tool 5\n" in capsys.readouterr().out
    assert package.version == "1.0-1"
