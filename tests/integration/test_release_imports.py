"""The locked set of every release imports, saves and loads a model as HDF5, and runs an LSTM.

`pytest --lf` goes on where a run stopped. A set is fetched, used and deleted, so this needs 2 GB of space and no more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.integration.test_lock_minors import lock
from tests.sampling import campaign
from training_imgtool.base.settings import from_environment
from training_imgtool.model.lock import LockedVariant
from training_imgtool.model.spec import Accelerator
from training_imgtool.resolve.versions.matrix import load_matrix
from training_imgtool.resolve.wheels.interpreters import find_interpreter
from training_imgtool.resolve.wheels.store import WheelStore

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.long]
RELEASES = tuple(
    release
    for minor in load_matrix().minors.values()
    for release in minor.releases
    if minor.name not in {"1.13", "1.14"}
)
_LARGE = 50 << 20  # bytes; wheels that no other release has
PROGRAM = """
import tempfile
import numpy as np
import tensorflow as tf
layers = tf.keras.layers
model = tf.keras.models.Sequential([layers.LSTM(4, input_shape=(3, 2)), layers.Dense(1)])
data = np.ones((2, 3, 2), "float32")
before = model.predict(data)
with tempfile.TemporaryDirectory() as folder:
    model.save(folder + "/model.h5")
    after = tf.keras.models.load_model(folder + "/model.h5", compile=False).predict(data)
assert np.allclose(before, after)
print("works", tf.__version__)
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheels") / "cache"


def try_set(locked: LockedVariant, program: str, cache: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program with the wheels of a lock and nothing else; skips where the Python is not on this machine."""
    interpreter = find_interpreter(locked.variant.python, os.environ)
    if interpreter is None:
        pytest.skip(f"no Python {locked.variant.python} on this machine")
    store = WheelStore(from_environment({**os.environ, "IMGTOOL_CACHE": str(cache)}))
    store.fetch(locked.wheels)
    for wheel in locked.wheels:
        path = store.require(wheel)
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
        if wheel.size > _LARGE:
            shutil.rmtree(path.parent)
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    start = (
        # addsitedir runs .pth files: setuptools brings distutils by one. TensorFlow before 2.6 reads site.USER_SITE,
        # which -S leaves unset.
        f"import site; site.getusersitepackages(); site.addsitedir({str(folder)!r})"
    )
    command = [interpreter.path, "-S", "-c", f"{start}\n{program}"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600, check=False)
    shutil.rmtree(folder)
    return done


@pytest.mark.parametrize("release", campaign(RELEASES, RELEASES[::15]))
def test_the_set_of_a_release_works(release: str, cache: Path, tmp_path: Path) -> None:
    locked = lock(load_matrix(), cache.parent, release, Accelerator.CPU)  # whose wheels of old sdists are in the cache
    done = try_set(locked, PROGRAM, cache, tmp_path / "site")
    named = release.partition(".post")[0]  # as 2.15.0.post1 calls itself
    assert done.stdout.endswith(f"works {named}\n"), done.stderr[-2000:]
