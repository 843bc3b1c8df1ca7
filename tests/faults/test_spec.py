"""Group Y: what can be wrong with image.yaml. Exit 3, the place, what was found, what is expected; nothing is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.project import SPEC, Project


def refused(project: Project, text: str | bytes, *says: str, hint: str | None = None) -> None:
    """`show` refuses a spec of `text`."""
    project.spec(text, lock=False)
    project.refused("show", "--json", code=3, says=says, hint=hint)


def test_y01_no_spec(project: Project) -> None:
    (project.folder / "image.yaml").unlink()
    project.refused("show", code=2, says=["no image.yaml", "images/*/image.yaml"], hint="imgtool init")
    project.refused("push", "nothere", "--json", code=3, says=["nothere: no such file or folder"])


def test_y14_registry(project: Project) -> None:
    for place, says in (
        ("registry.example.com:99999/x", "the port from 1 to 65535"),
        ("registry.example.com/Upper", "lower case"),
        ("registry.example.com/a b", "is not a repository path"),
        ("https://registry.example.com/x", "expected HOST/PATH"),
    ):
        refused(project, f"{SPEC}registry: {place}\n", "image.yaml:11:11: registry: ", says)
        project.spec(SPEC)
        project.refused("push", "--registry", place, code=2, says=["--registry: ", says])


def test_fields_are_told_to_programs(project: Project) -> None:
    """O9: CI can point at every place of a wrong spec."""
    project.spec(SPEC.replace("trainer:", "trainr:").replace("demo", "Demo"), lock=False)
    fields = project.refused("show", "--json", code=3).document["error"]["fields"]
    assert [(field["field"], field["location"]) for field in fields] == [
        ("name", "image.yaml:1:7"),
        ("trainr", "image.yaml:4:1"),
    ]
    assert fields[1]["hint"] == "did you mean trainer?"


def test_another_folder(project: Project, tmp_path: Path) -> None:
    """Messages name the spec as it was given."""
    project.spec(SPEC + "name: x\n", lock=False)
    project.refused("show", project.folder, code=3, says=["Error: project/image.yaml:11:1: "], cwd=tmp_path)


VERBS = ("config", "verify", "run", "show", "lock", "sign", "render", "doctor", "build", "push")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_keys_of_the_spec_and_blames_the_command_line_for_wrong_ones(
    project: Project, verb: str
) -> None:
    before = sorted(path.name for path in project.folder.iterdir())
    ended = project.run(verb, "--set", "tensorflov=2.15.1")
    text = ended.out if verb == "doctor" else ended.err
    assert ended.code == 2, ended.err
    assert "--set tensorflov=2.15.1: " in text
    assert "tensorflow" in text.partition("tensorflov")[2]
    assert sorted(path.name for path in project.folder.iterdir()) == before


def test_a_key_of_the_command_line_counts_for_show_and_render(project: Project) -> None:
    keys = [project.run("show", "--json", *more).document["roles"][0]["key"] for more in ((), ("--set", "user=1000"))]
    assert keys[0] != keys[1]
    assert "USER 1000" in project.run("render", "--set", "user=1000").out
