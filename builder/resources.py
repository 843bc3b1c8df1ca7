"""The one module that knows where the data folders lie: `templates` and `images`."""

from __future__ import annotations

from pathlib import Path


def directory(name: str) -> Path:
    """The folder `name`: inside the installed package (`builder/_data`), else its sibling in a checkout.

    Raises FileNotFoundError when neither is there, which only a broken installation does.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "_data" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"no folder {name!r} beside {package}")
