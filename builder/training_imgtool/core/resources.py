"""The one module that knows where the data folders lie: `templates` and `images`."""

from __future__ import annotations

from pathlib import Path


def directory(name: str) -> Path:
    """The folder `name`: inside the installed package (`training_imgtool/_data`), else at the top of a checkout.

    Raises FileNotFoundError when neither is there, which only a broken installation does.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_data" / name, package.parents[1] / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"no folder {name!r} beside {package}")
