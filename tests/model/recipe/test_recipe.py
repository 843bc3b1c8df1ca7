"""The keys of a recipe: what each stage's depends on, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import plans
from training_imgtool.base.context.context import scan
from training_imgtool.base.errors import FieldError
from training_imgtool.base.reference import Repository
from training_imgtool.base.settings import from_environment
from training_imgtool.model.load import load
from training_imgtool.model.lock import LockedDebian
from training_imgtool.model.recipe import install_step
from training_imgtool.model.recipe.recipe import Lines, Recipe, Template
from training_imgtool.model.spec import Role
from training_imgtool.plan.recipes import make_copy, make_recipe

RUN = Lines(lines=("true",), env={"A": "1"}, secrets=("token",))
DEBIAN = LockedDebian(requested=("libgomp1",), engine="its script asks")
SPEC = """\
name: demo
tensorflow: "2.15.1"
trainer: {source: trainer, module: trainer.task}
roles: {master: {}, worker: {}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("print(1)\n")
    (tmp_path / "image.yaml").write_text(SPEC)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/a.yaml").write_text("a: 1\n")
    return tmp_path


def whole() -> Recipe:
    """A recipe with every stage."""
    locked = replace(plans.locked(), debian=DEBIAN)
    return plans.recipe(locked_variant=locked, run=RUN, run_after_packages=RUN)


def keys_of(recipe: Recipe) -> dict[str, str]:
    return {stage.name: stage.key for stage in recipe.make_stages()}


def changed(before: Recipe, after: Recipe) -> set[str]:
    one, other = keys_of(before), keys_of(after)
    assert one.keys() == other.keys()
    return {name for name in one if one[name] != other[name]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"env": {"A": "1"}}, {"image"}),
        ({"labels": {"a": "1"}}, {"image"}),
        ({"user": "1000"}, {"image"}),
        ({"entrypoint": ("x",)}, {"image"}),
        ({"working_folder": "/"}, {"image"}),
        ({"run_after_packages": Lines(lines=("false",))}, {"setup", "image"}),
        ({"exclude": ("tensorflow/include",)}, {"packages", "setup", "image"}),
        ({"compression": "zstd"}, {"packages", "setup", "image"}),
        ({"epoch": 5}, {"packages", "setup", "image"}),
        ({"run": replace(RUN, lines=("false",))}, {"run", "packages", "setup", "image"}),
        ({"run": replace(RUN, env={})}, {"run", "packages", "setup", "image"}),
        ({"run": replace(RUN, secrets=())}, {"run", "packages", "setup", "image"}),
        ({"library_path": "/x"}, {"system", "run", "packages", "setup", "image"}),
        ({"platform": "linux/arm64"}, {"system", "run", "packages", "setup", "image"}),
        ({"base_name": "docker.io/library/python:3"}, set()),
    ],
)
def test_what_changes_what(changes: dict[str, Any], expected: set[str]) -> None:
    assert changed(whole(), replace(whole(), **changes)) == expected


def test_a_mirror_changes_nothing_and_another_base_everything() -> None:
    recipe = whole()
    mirrored = Repository("127.0.0.1:5000", "mirror/python").digest(recipe.base.digest)
    other = recipe.base.repository.digest(f"sha256:{'ab' * 32}")
    assert changed(recipe, replace(recipe, base=mirrored)) == set()
    assert changed(recipe, replace(recipe, base=other)) == {"system", "run", "packages", "setup", "image"}


def test_other_wheels_of_the_same_versions_change_the_packages() -> None:
    wheels = (plans.wheel("numpy", "1.26.4", data=b"other"), plans.wheel("tensorflow-cpu", "2.15.1"))
    recipe = plans.recipe(locked_variant=plans.locked(wheels=wheels))
    assert changed(plans.recipe(), recipe) == {"packages", "image"}


def test_a_templates_key_has_its_text_and_the_whole_context(folder: Path) -> None:
    template = Template(name="t", text="FROM a", context=scan(folder).entries)
    (folder / "notes.txt").write_text("x")
    recipe = plans.recipe(template=template)
    other_text = replace(recipe, template=replace(template, text="FROM b"))
    another_file = replace(recipe, template=replace(template, context=scan(folder).entries))
    assert changed(recipe, other_text) == changed(recipe, another_file) == {"image"}


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", ""])
def test_a_templates_key_has_what_docker_reads_as_lines(separator: str) -> None:
    """Docker ends a line at LF alone, so another character keeps what follows a part of the comment."""
    texts = (f"FROM a\n# a comment{end}RUN echo evil\n" for end in ("\n", separator))
    one, other = (plans.recipe(template=Template(name="t", text=text, context=())) for text in texts)
    assert changed(one, other) == {"image"}


def test_a_templates_key_has_the_date_that_its_builder_gets() -> None:
    recipe = plans.recipe(template=Template(name="t", text="FROM a", context=()))
    assert changed(recipe, replace(recipe, epoch=1)) == {"image"}


def test_an_engine_makes_what_has_lines_and_packages_that_imgtool_cannot_lay_out() -> None:
    assert [stage.name for stage in whole().make_stages() if stage.engine] == ["system", "run", "setup"]
    assert [stage.name for stage in plans.recipe().make_stages() if stage.engine] == []


def test_variables_that_look_like_secrets_are_published_as_hashes() -> None:
    recipe = plans.recipe(env={"PAD_TOKEN": "abc", "B": "2"}, run=Lines(lines=("x",), env={"PAD_TOKEN": "abc"}))
    published = recipe.publish_document(("env.PAD_TOKEN", "secrets/*.pem"))
    assert published["env"]["B"] == "2"
    assert len(published["env"]["PAD_TOKEN"]) == len(published["run"]["env"]["PAD_TOKEN"]) == 64
    assert recipe.make_document()["env"]["PAD_TOKEN"] == "abc"


def recipe_of(folder: Path, role: Role = Role.WORKER, **changes: Any) -> Recipe:
    spec_file = replace(load(folder / "image.yaml"), **changes)
    return make_recipe(spec_file, role, plans.locked(), scan(folder), exclude=(), settings=from_environment({}))


def test_a_byte_of_code_changes_the_image_alone_and_a_file_beside_it_nothing(folder: Path) -> None:
    before = recipe_of(folder)
    (folder / "notes.txt").write_text("x")
    assert changed(before, recipe_of(folder)) == set()
    (folder / "trainer" / "task.py").write_text("print(2)\n")
    assert changed(before, recipe_of(folder)) == {"image"}


def test_a_template_has_no_compression_of_imgtools(folder: Path) -> None:
    spec = replace(load(folder / "image.yaml").spec, template="own.j2", compression="zstd")
    with pytest.raises(FieldError, match="the layers that imgtool makes"):
        recipe_of(folder, spec=spec)


def test_roles_with_the_same_inputs_have_equal_recipes(folder: Path) -> None:
    assert recipe_of(folder, Role.MASTER) == recipe_of(folder, Role.WORKER)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("conf: /opt/venv/x", "/opt/venv/x: /opt/venv has the Python packages"),
        ("conf: /proc/x", "/proc is the engine's"),
        ("conf/a.yaml: /etc/hosts", "/etc/hosts is the engine's"),
        ("conf/a.yaml: /app/trainer/task.py", "/app/trainer/task.py is also the target of the code"),
        ("conf: /app/trainer/task.py", "/app/trainer/task.py is also the target of the code"),
        ("conf/a.yaml: /app/trainer", "/app/trainer is also the target of the code"),
        ("conf/a.yaml: /app", "/app is also the target of the code"),
        ("conf/a.yaml: /x\n  trainer/task.py: /x", "/x is also the target of the code or of another line of `files`"),
        ("conf/a.yaml: /x\n  trainer: /x", "/x is also the target of the code or of another line of `files`"),
        ("gone: /x", "gone: does not exist, or .dockerignore leaves it out"),
        ("../x: /x", "expected a path below the spec's folder"),
        ("/etc: /x", "expected a path below the spec's folder"),
    ],
)
def test_files_without_a_place(folder: Path, lines: str, why: str) -> None:
    (folder / "image.yaml").write_text(f"{SPEC}files:\n  {lines}\n")
    with pytest.raises(FieldError) as caught:
        recipe_of(folder)
    assert why in caught.value.message
    assert caught.value.field.startswith("files.")


def test_files_and_folders_come_to_their_targets(folder: Path) -> None:
    (folder / "image.yaml").write_text(
        f"{SPEC}files:\n  conf: /etc/conf/\n  conf/a.yaml: /srv/\n  trainer/task.py: /run.py\n"
    )
    placed = [path for copy in recipe_of(folder).files for path, _ in copy.list_paths()]
    assert placed == ["/etc/conf/a.yaml", "/srv/a.yaml", "/run.py"]


@pytest.mark.parametrize("name", ["a b", "a*", "$X", "../x", "a/../b"])
def test_code_whose_path_no_copy_takes(folder: Path, name: str) -> None:
    with pytest.raises(FieldError, match="expected a folder of letters, digits"):
        recipe_of(folder, entry=plans.entry_point(folder=name))


def test_a_link_that_leads_nowhere_is_no_source(folder: Path) -> None:
    (folder / "link").symlink_to("gone")
    with pytest.raises(FieldError, match="does not exist, or"):
        make_copy(scan(folder), "link", "/x", "files.link")


def test_the_folders_of_cuda_13() -> None:
    wheels = tuple(plans.wheel(f"nvidia-{name}", "13.5.37") for name in ("cuda-runtime", "cublas", "nccl-cu13"))
    locked = plans.locked("gpu", package="jax", tensorflow=None, jax="0.10.2", python="3.11", wheels=wheels)
    site = "/opt/venv/lib/python3.11/site-packages/nvidia"
    folders = install_step.library_path(locked, cuda_base=False).split(":")[2:]
    assert folders == [f"{site}/nccl/lib", f"{site}/cu13/lib"]
