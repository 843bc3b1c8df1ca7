"""Runs many gcloud commands in one process of gcloud's own code: starting gcloud takes seconds.

Run by the Python of gcloud with the folder of gcloud's code and a file for the answers as arguments. Standard input has
one JSON list of words per line, without `gcloud`; the file gets one JSON line for each: null, or the error.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    library, answers = map(Path, sys.argv[1:])
    sys.path[:0] = [str(library), str(library / "third_party")]
    create_cli = importlib.import_module("googlecloudsdk.gcloud_main").CreateCLI
    with answers.open("w") as file:
        for line in sys.stdin:
            error = None
            try:
                create_cli([]).Execute(json.loads(line))  # a parser remembers which flags it has seen
            except SystemExit as code:
                error = f"exit {code}" if code.code else None
            except Exception as caught:  # noqa: BLE001 - the caller asserts on it
                error = f"{type(caught).__name__}: {caught}"
            file.write(json.dumps(error) + "\n")
            file.flush()  # who gives one command at a time waits for it


main()
