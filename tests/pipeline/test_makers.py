"""Who made which stage of an image, as its provenance says: by the plan and by the image's history."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.pipeline.test_buildx_engine import prepared
from training_imgtool.attest.provenance import PREDICATE
from training_imgtool.core.reference import parse_repository
from training_imgtool.dockerfile.install_step import compile_command
from training_imgtool.dockerfile.parse import parse
from training_imgtool.pipeline.attach import (
    INPUTS,
    Trace,
    _list_laid_out,
    describe,
    list_makers,
    make_attestation,
    read_trace,
)
from training_imgtool.pipeline.inputs import Inputs, RoleImage, debian_runs
from training_imgtool.plan import REVISION, DebianPackage, LockedDebian
from training_imgtool.registry.manifests import OCI_MANIFEST, Descriptor

BASE = {"created_by": "CMD [python3]", "comment": "buildkit.dockerfile.v0"}
OWN = {"created_by": "COPY trainer", "comment": "imgtool"}
MADE = parse_repository("registry.example.com/team/image").digest(f"sha256:{'a' * 64}")
CLASSIC = {"created_by": "/bin/sh -c true"}
BUILDKIT = {"created_by": "RUN /bin/sh -c true # buildkit", "comment": "buildkit.dockerfile.v0"}


Projects = Callable[[str | None], tuple[Inputs, RoleImage]]


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Projects:
    """Prepares a project whose worker has a RUN in a block of its template, each once."""
    folder = tmp_path_factory.mktemp("makers")
    return cache(
        lambda block: prepared(folder / str(block), block or "before_code", "RUN echo a" if block else "ENV A=1")
    )


@pytest.mark.parametrize(
    ("block", "trace", "engine"),
    [
        (None, Trace(direct=True, builder=False), set()),
        ("system_extra", Trace(direct=True, builder=False), {"system"}),
        ("system_extra", Trace(direct=True, builder=True), {"system"}),
        ("packages_extra", Trace(direct=True, builder=False), {"system", "wheels", "venv", "packages"}),
        ("packages_extra", Trace(direct=True, builder=True), {"packages"}),
        ("before_code", Trace(direct=False, builder=True), {"worker"}),
        ("before_code", Trace(direct=False, builder=False), {"system", "wheels", "packages", "worker"}),
        (None, Trace(direct=True, builder=True, compiled=True), {"packages"}),
    ],
)
def test_which_stages_an_engine_ran(projects: Projects, block: str | None, trace: Trace, engine: set[str]) -> None:
    made = list_makers(*projects(block), trace)
    assert list(made)[-2:] == ["packages", "worker"]
    assert {label for label, by_engine in made.items() if by_engine} == engine & set(made)


@pytest.mark.parametrize(
    ("address", "uri"),
    [
        ("https://git.example.com/a", "git+https://git.example.com/a"),
        ("git@git.example.com:team/a.git", "git+ssh://git@git.example.com/team/a.git"),
        ("/srv/a", "git+file:///srv/a"),
    ],
)
def test_the_provenance_names_the_commit_of_the_code(projects: Projects, address: str, uri: str) -> None:
    inputs, image = projects(None)
    trace = Trace(direct=True, builder=False)

    def source(checkout: tuple[str, str] | None) -> dict[str, Any]:
        predicate = describe(inputs, image, trace, epoch=0, checkout=checkout)[PREDICATE]
        rows = predicate["buildDefinition"]["resolvedDependencies"]
        return next(row for row in rows if row["name"] == "source")

    digest = {"gitTree": image.plan.labels[REVISION]}
    assert source(None) == {"name": "source", "digest": digest}
    commit = "c" * 40
    assert source((address, commit)) == {"name": "source", "uri": uri, "digest": {**digest, "gitCommit": commit}}


@pytest.mark.parametrize(("block", "builder"), [(None, "direct"), ("system_extra", "engine")])
def test_the_provenance_names_who_made_which_stage_and_when(
    projects: Projects, block: str | None, builder: str
) -> None:
    inputs, image = projects(block)
    trace = Trace(direct=True, builder=False, found="system")
    predicate = describe(inputs, image, trace, epoch=86_400)[PREDICATE]
    run, made = predicate["runDetails"], predicate["buildDefinition"]["internalParameters"]
    assert run["builder"]["id"] == f"urn:dev.imgtool:builder:{builder}"
    assert run["metadata"] == {"invocationId": image.key, "finishedOn": "1970-01-02T00:00:00Z"}
    by = {stage["name"]: stage["builder"].rpartition(":")[2] for stage in made["stages"]}
    assert (by.get("system", builder), by["worker"]) == (builder, "direct")
    assert made["found"] == [name for name in by if name == "system"]


def test_what_a_history_tells(projects: Projects) -> None:
    _, image = projects(None)

    def read(*lines: dict[str, Any]) -> Trace:
        return read_trace(image, {"history": [BASE, *lines]})

    compiled = {**BUILDKIT, "created_by": f"RUN /bin/sh -c {compile_command(image.plan.locked)} # buildkit"}
    assert read(OWN, OWN) == Trace(direct=True, builder=True)  # the base's builder, and no stage of an engine
    assert read(CLASSIC, OWN) == Trace(direct=True, builder=False)
    assert read(BUILDKIT, OWN) == Trace(direct=True, builder=True)
    assert read(OWN, BUILDKIT) == Trace(direct=False, builder=True)
    assert read(CLASSIC) == Trace(direct=False, builder=False)
    assert read(CLASSIC, OWN, compiled, OWN) == Trace(direct=True, builder=False, compiled=True)
    assert read(OWN, CLASSIC, compiled) == Trace(direct=False, builder=True)  # no line of imgtool's is below it
    assert read_trace(image, {}) == Trace(direct=False, builder=False)


@pytest.mark.parametrize(
    ("makers", "engine", "named"),
    [({"system": False}, "", ["libx"]), ({"system": True}, "", []), ({"system": False}, "a script", []), ({}, "", [])],
)
def test_the_bill_names_debian_packages_that_imgtool_laid_out(
    projects: Projects, makers: dict[str, bool], engine: str, named: list[str]
) -> None:
    _, image = projects(None)
    package = DebianPackage(name="libx", version="1", architecture="amd64", file="pool/x.deb", sha256="ab" * 32, size=1)
    debian = LockedDebian(requested=("libx",), packages=(package,), engine=engine)
    plan = replace(image.plan, locked=replace(image.plan.locked, debian=debian))
    (run,) = debian_runs(replace(plan, locked=replace(plan.locked, debian=replace(debian, engine=""))))
    laid_out = replace(image, plan=plan, dockerfile=parse(f"FROM scratch AS system\nRUN {run}\n"))
    assert [one.name for one in _list_laid_out(laid_out, makers)] == named


def test_the_attestations_name_spec_and_code(projects: Projects) -> None:
    """By hashes, which tell whoever lists them whether they are about the files at hand."""
    inputs, image = projects(None)
    predicates = describe(inputs, image, Trace(direct=True, builder=False), epoch=0)
    rows = predicates[PREDICATE]["buildDefinition"]["resolvedDependencies"]
    (spec,) = (row["digest"]["sha256"] for row in rows if row["name"] == "spec")
    made = make_attestation(MADE, Descriptor(OCI_MANIFEST, MADE.digest, 1), predicates)
    for manifest in (made.bill, made.provenance):
        named = json.loads(json.loads(manifest)["annotations"][INPUTS])
        assert named == {"spec": spec, "source": image.plan.labels[REVISION]}
