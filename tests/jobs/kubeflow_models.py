"""Kubeflow's own models of its objects, closed: what they leave out of a document was no key of theirs."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest


def complaints(document: Any) -> list[str]:
    """What the model of the document's kind says against it; skips the test where the package is not installed."""
    pytest.importorskip("kubeflow_trainer_api", reason="the development group has kubeflow-trainer-api")
    kind = document["kind"]
    module = f"trainer_v1alpha1_{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', kind).lower()}"
    models = import_module(f"kubeflow_trainer_api.models.{module}")
    name = "".join(part[:1].upper() + part[1:] for part in module.split("_"))
    model = next(getattr(models, each) for each in dir(models) if each.lower() == name.lower())
    try:
        read = model.from_dict(document)
    except ValueError as error:  # pydantic's
        return [str(error)]
    return list(_lost(document, read.to_dict(), kind))


def _lost(asked: Any, kept: Any, path: str) -> Iterator[str]:
    if isinstance(asked, dict):
        for key, value in asked.items():
            if not isinstance(kept, dict) or key not in kept:
                yield f"{path}.{key} is no key of the model"
            else:
                yield from _lost(value, kept[key], f"{path}.{key}")
    elif isinstance(asked, list):
        for index, value in enumerate(asked):
            yield from _lost(value, kept[index], f"{path}[{index}]")
    elif asked != kept and not isinstance(kept, dt.datetime):
        yield f"{path}: {asked!r} became {kept!r}"
