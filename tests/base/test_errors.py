"""Errors go from one process to another, as process pools, Dask and Airflow send them."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor

import pytest

import training_imgtool
from training_imgtool.base.errors import FieldError, FieldListError, ImgtoolError


def _list_errors() -> list[type[ImgtoolError]]:
    for module in pkgutil.walk_packages(training_imgtool.__path__, "training_imgtool."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: set[type[ImgtoolError]] = set()
    waiting: list[type[ImgtoolError]] = [ImgtoolError]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind not in found:
                found.add(kind)
                waiting.append(kind)
    return sorted(found, key=str)


def test_every_error_pickles() -> None:
    errors = _list_errors()
    assert len(errors) > 20
    for kind in errors:
        error = kind.__new__(kind, "text")
        error.__dict__.update(message="text", hint="hint", details=("a", "b"))
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.args, again.__dict__) == (kind, error.args, error.__dict__)


def _raise() -> None:
    error = FieldError("is wrong", field="roles.worker", location="image.yaml:1:2", hint="mend it")
    raise FieldListError((error,))


def test_an_error_comes_out_of_a_pool_of_processes() -> None:
    with ProcessPoolExecutor(1) as pool, pytest.raises(FieldListError) as caught:
        pool.submit(_raise).result()
    assert [(error.field, error.location) for error in caught.value.errors] == [("roles.worker", "image.yaml:1:2")]
