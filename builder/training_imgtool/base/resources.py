"""The package's data files, and the folders `templates` and `images`."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def data_file(name: str, folder: str = "data") -> Path:
    """Returns the path of the file `name` in a folder of the package."""
    return PACKAGE / folder / name


def directory(name: str) -> Path:
    """Returns the folder `name` of the installed package (`training_imgtool/_data`), or else of the checkout.

    Raises FileNotFoundError if neither folder exists, because the installation is broken.
    """
    for folder in (PACKAGE / "_data" / name, PACKAGE.parents[1] / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"no folder {name!r} beside {PACKAGE}")
