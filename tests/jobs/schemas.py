"""The strict schema of each target, from `../shared/schemas` beside the checkout."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "schemas"
_KIND_FILES = {
    "TFJob": "kubeflow.org_tfjobs.v1.9.4.yaml",
    "JobSet": "jobset.x-k8s.io_jobsets.v0.12.0.yaml",
    "ImageCache": "imagecaches.eci.alibabacloud.com.yaml",
}
_NAMES = {"type": "object", "required": ["name"], "additionalProperties": False, "properties": {
    "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"},
    "namespace": {"type": "string"},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
}}  # fmt: skip
_HOSTS = {"type": "array", "items": {"type": "string", "pattern": ":[0-9]+$"}}
_TYPES = ["chief", "master", "worker", "ps", "evaluator"]
_SERVICE = {"type": "object", "required": ["metadata", "spec"], "additionalProperties": False, "properties": {
    "apiVersion": {"const": "v1"}, "kind": {"const": "Service"}, "metadata": _NAMES,
    "spec": {"type": "object", "additionalProperties": False, "properties": {
        "clusterIP": {"const": "None"}, "publishNotReadyAddresses": {"type": "boolean"},
        "selector": {"type": "object", "additionalProperties": {"type": "string"}},
        "ports": {"type": "array", "items": {"type": "object", "additionalProperties": False, "properties": {
            "name": {"type": "string"}, "port": {"type": "integer"}}}},
    }},
}}  # fmt: skip
_VARIABLE = {"type": ["object"], "additionalProperties": False, "required": ["cluster", "task"], "properties": {
    "cluster": {"type": "object", "additionalProperties": _HOSTS},
    "task": {"type": "object", "additionalProperties": False, "required": ["type", "index"], "properties": {
        "type": {"enum": _TYPES}, "index": {"type": "integer", "minimum": 0}}},
    "environment": {"const": "cloud"}, "model_dir": {"type": "string"},
}}  # fmt: skip
_NODE = {"type": "object", "additionalProperties": False, "required": ["TF_CONFIG", "CLUSTER_SPEC"],
         "properties": {"TF_CONFIG": _VARIABLE, "CLUSTER_SPEC": _VARIABLE}}  # fmt: skip
_NODES = {"type": "object", "additionalProperties": _NODE}


def need() -> None:
    """Skips the test where the schemas are not beside the checkout."""
    if not FOLDER.is_dir():
        pytest.skip("../shared/schemas is not beside this checkout")


def closed(schema: Any) -> Any:
    """The schema with every object that lists its properties closed: published CRDs let typos through."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    opened = made.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(made.get("properties"), dict) and "additionalProperties" not in made and not opened:
        made["additionalProperties"] = False
    return made


@cache
def _crd(kind: str) -> Any:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crd = yaml.load((FOLDER / _KIND_FILES[kind]).read_text(), Loader=loader)
    schema = closed(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = _NAMES
    return schema


@cache
def _pod() -> Any:
    replica = _crd("TFJob")["properties"]["spec"]["properties"]["tfReplicaSpecs"]["additionalProperties"]
    spec = replica["properties"]["template"]["properties"]["spec"]
    kinds = {"apiVersion": {"const": "v1"}, "kind": {"const": "Pod"}}
    return {"type": "object", "required": ["metadata", "spec"], "additionalProperties": False,
            "properties": {**kinds, "metadata": _NAMES, "spec": spec}}  # fmt: skip


@cache
def _file(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


@cache
def validator(kind: str) -> Any:
    """A validator for `ai-platform`, `vertex`, `vertex-api`, `compose`, `tf-config` or a Kubernetes kind."""
    if kind in _KIND_FILES:
        return jsonschema.Draft7Validator(_crd(kind))
    if kind in {"Pod", "Service", "tf-config"}:
        return jsonschema.Draft7Validator(_pod() if kind == "Pod" else _SERVICE if kind == "Service" else _NODES)
    if kind == "vertex-tuning":
        return discovered("aiplatform.v1", "GoogleCloudAiplatformV1HyperparameterTuningJob")
    if kind == "vertex-api":
        schema = copy.deepcopy(_file("vertex-custom-job-spec.schema.json"))
        schema["$ref"] = "#/definitions/GoogleCloudAiplatformV1CustomJob"
        return jsonschema.Draft7Validator(schema)
    names = {"ai-platform": "ai-platform-job", "vertex": "vertex-custom-job-spec", "compose": "compose-spec"}
    return jsonschema.Draft7Validator(_file(f"{names[kind]}.schema.json"))


@cache
def discovered(api: str, name: str) -> Any:
    """A strict validator for a message of a Google API, from the discovery document that its Python client ships."""
    import googleapiclient

    folder = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
    messages = json.loads((folder / f"{api}.json").read_text())["schemas"]

    def strict(schema: Any) -> Any:
        if "$ref" in schema:
            return {"$ref": f"#/definitions/{schema['$ref']}"}
        closed_schema = {
            key: schema[key] for key in ("type", "enum", "format") if key in schema and schema[key] != "any"
        }
        if closed_schema.get("format") == "int64":
            closed_schema["type"] = ["string", "integer"]
        if "properties" in schema:
            closed_schema["properties"] = {key: strict(item) for key, item in schema["properties"].items()}
        if "items" in schema:
            closed_schema["items"] = strict(schema["items"])
        if schema.get("type") == "object":
            extra = schema.get("additionalProperties")
            closed_schema["additionalProperties"] = strict(extra) if extra else "properties" not in schema
        return closed_schema

    definitions = {key: strict(message) for key, message in messages.items()}
    return jsonschema.Draft7Validator({"$ref": f"#/definitions/{name}", "definitions": definitions})


def complaints(kind: str, document: Any) -> list[str]:
    """What the strict schema says against a document."""
    return [f"{error.json_path}: {error.message}" for error in validator(kind).iter_errors(document)]
