"""The one module that knows where data lies: the package's own tables, and the folders `templates` and `images`."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def data_file(name: str) -> Path:
    """The file `name` of the package's own `data` folder."""
    return PACKAGE / "data" / name


def directory(name: str) -> Path:
    """The folder `name`: inside the installed package (`training_imgtool/_data`), else at the top of a checkout.

    Raises FileNotFoundError when neither is there, which only a broken installation does.
    """
    for folder in (PACKAGE / "_data" / name, PACKAGE.parents[1] / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"no folder {name!r} beside {PACKAGE}")
