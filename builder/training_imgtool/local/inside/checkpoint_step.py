"""Prints a checkpoint's training step as JSON; runs in a container, with the libraries of the image.

The imports at the top import only the standard library, and the code runs on Python 3.7.
"""

from __future__ import annotations

import importlib
import json
import re
import sys

_NAMES = re.compile(
    r"(?:\A|/)(?:(?:(?:global|train|trained|training|current)_)?step|_?iterations?|iter)"
    r"(?:\Z|/\.ATTRIBUTES/VARIABLE_VALUE\Z|:0\Z)"
)
_FIRST_VARIABLE = re.compile(r"(?:\A|/)optimizer/vars/0\Z")  # Keras 3: the optimizer's iterations


def read_tensorflow(path: str) -> int | None:
    """Reads global_step, or the optimizer's step count, from TensorFlow's files; else from TensorFlow 1's file name."""
    reader = importlib.import_module("tensorflow").train.load_checkpoint(path)
    shapes = reader.get_variable_to_shape_map()
    named = None if "_CHECKPOINTABLE_OBJECT_GRAPH" in shapes else re.search(r"-(\d+)\Z", path)
    steps = [int(reader.get_tensor(name)) for name, shape in shapes.items() if not shape and _NAMES.search(name)]
    return max(steps, default=int(named.group(1)) if named else None)


def read_keras(path: str) -> int | None:
    """Reads the optimizer's step count from Keras' files: HDF5, or a zip archive with an HDF5 file."""
    import io
    import zipfile

    h5py = importlib.import_module("h5py")
    source: object = path
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            source = io.BytesIO(archive.read("model.weights.h5"))
    steps = []

    def look(name: str, item: object) -> None:
        named = _NAMES.search(name) or _FIRST_VARIABLE.search(name)
        if named and isinstance(item, h5py.Dataset) and not item.shape:
            steps.append(int(item[()]))

    with h5py.File(source, "r") as file:
        file.visititems(look)
    return max(steps, default=None)


def read(path: str) -> int | None:
    """Reads the step of a checkpoint of any supported format."""
    if path.endswith((".keras", ".h5")):
        return read_keras(path)
    number = re.search(  # Orbax and Flax use the step as the name, and others as a part of it
        r"(?:\A|/)(?:(?:checkpoint|ckpt)_)?(\d+)\Z|step[_=-]?(\d+)[^/]*\Z", path
    )
    return int(number.group(1) or number.group(2)) if number else read_tensorflow(path)


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"step": read(sys.argv[1])}) + "\n")
