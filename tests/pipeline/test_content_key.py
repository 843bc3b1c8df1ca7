from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plans import entry_point, locked, role_plan, wheel
from training_imgtool.context.context import Context, scan
from training_imgtool.core.reference import Repository
from training_imgtool.dockerfile.mounts import context_sources
from training_imgtool.dockerfile.parse import DockerfileError, parse
from training_imgtool.dockerfile.render import TemplateRoots, render
from training_imgtool.pipeline.content_key import stage_keys
from training_imgtool.plan import RolePlan
from training_imgtool.spec.model import Role

DIGEST = "sha256:" + "ab" * 32
SHARED = ("base", "system", "wheels", "packages")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("print(1)\n")
    return tmp_path


def with_wheels(context: Context, plan: RolePlan) -> Context:
    variant = plan.locked.variant.name
    for one in plan.locked.wheels:
        context = context.with_known(f"wheels/{variant}/{one.file}", sha256=one.sha256, size=one.size)
    return context.with_bytes(f"wheels/{variant}/requirements.txt", b"")


def keys_of(folder: Path, plan: RolePlan | None = None, key: str | None = None, **changes: Any) -> dict[str, str]:
    plan = plan or role_plan(**changes)
    context = with_wheels(scan(folder, only=("trainer",)), plan)
    return stage_keys(parse(render(plan, roots=TemplateRoots(), key=key)), context, plan.platform, "gzip", {})


def test_another_compression_is_another_image(folder: Path) -> None:
    """The registry has layers of the old one under the old key; an engine's stages are packed by the engine."""
    plan = role_plan(system_packages=("libgomp1",))
    context = with_wheels(scan(folder, only=("trainer",)), plan)
    file = parse(render(plan, roots=TemplateRoots(), key=None))
    gzip, zstd = (stage_keys(file, context, plan.platform, name, {}) for name in ("gzip", "zstd"))
    assert changed(gzip, zstd) == {"packages", "image"}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_stages_without_instructions_are_their_parents(folder: Path) -> None:
    plan = role_plan()
    keys = keys_of(folder, plan)
    assert keys["base"] == keys["system"] == plan.base.hex
    assert len({*keys.values()}) == 4
    assert all(len(key) == 64 and set(key) <= set("0123456789abcdef") for key in keys.values())


def test_a_byte_of_code_changes_the_role_alone(folder: Path) -> None:
    before = keys_of(folder)
    (folder / "trainer" / "task.py").write_text("print(2)\n")
    assert changed(before, keys_of(folder)) == {"image"}


def test_a_file_beside_the_code_changes_nothing(folder: Path) -> None:
    before = keys_of(folder)
    (folder / "notes.txt").write_text("x")
    assert changed(before, keys_of(folder)) == set()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"env": {"A": "1"}}, {"image"}),
        ({"labels": {"a": "1"}}, {"image"}),
        ({"user": "1000"}, {"image"}),
        ({"entry": entry_point(module="trainer.other")}, {"image"}),
        ({"exclude": ("tensorflow/include",)}, {"wheels", "packages", "image"}),
        ({"system_packages": ("libgomp1",)}, {"system", "wheels", "packages", "image"}),
        ({"platform": "linux/arm64"}, {"wheels", "packages", "image"}),
    ],
)
def test_what_changes_what(folder: Path, changes: dict[str, Any], expected: set[str]) -> None:
    assert changed(keys_of(folder), keys_of(folder, **changes)) == expected


def test_other_wheels_change_the_packages(folder: Path) -> None:
    other = locked(wheels=(wheel("numpy", "1.26.4", data=b"other"), wheel("tensorflow-cpu", "2.15.1")))
    assert changed(keys_of(folder), keys_of(folder, locked_variant=other)) == {"wheels", "packages", "image"}


def test_another_base_changes_everything(folder: Path) -> None:
    plan = role_plan()
    other = role_plan(base=plan.base.repository.digest(DIGEST))
    assert changed(keys_of(folder, plan), keys_of(folder, other)) == {*SHARED, "image"}


def test_a_mirror_changes_nothing(folder: Path) -> None:
    plan = role_plan()
    mirrored = role_plan(base=Repository("127.0.0.1:5000", "mirror/python").digest(plan.base.digest))
    assert keys_of(folder, plan) == keys_of(folder, mirrored)


def test_the_key_label_changes_nothing(folder: Path) -> None:
    assert keys_of(folder) == keys_of(folder, key="f" * 64)


def test_roles_with_the_same_inputs_share_the_image(folder: Path) -> None:
    assert keys_of(folder, role=Role.MASTER) == keys_of(folder, role=Role.WORKER)


def key_of(text: str, context: Context | None = None, platform: str = "linux/amd64") -> str:
    file = parse(text)
    return stage_keys(file, context or Context(), platform, "gzip", {})[file.stages[-1].label]


FROM = f"FROM python:3@{DIGEST} AS a\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ENV A=1 B=2\n", "# comment\nENV A=1 \\\n    # inside\n    B=2\n"),
        ("LABEL a=1 dev.imgtool.key=x\n", "LABEL a=1 \\\n  \"dev.imgtool.key\"='y'\n"),
        ("RUN true\n", "\n\nrun true\n"),
        ("ARG A\nRUN true\n", "ARG A\nRUN true\n"),
    ],
)
def test_writing_it_differently_is_the_same_key(one: str, other: str) -> None:
    assert key_of(FROM + one) == key_of(FROM + other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ENV A=1\n", "ENV A=2\n"),
        ("ENV A=1\nENV B=1\n", "ENV B=1\nENV A=1\n"),
        ("RUN a\nUSER b\n", "USER b\nRUN a\n"),
        ("RUN a\n", 'RUN ["a"]\n'),
        ("RUN --network=none a\n", "RUN a\n"),
        ("RUN <<X\na\nX\n", "RUN <<X\nb\nX\n"),
        ("RUN <<X\n$a\nX\n", "RUN <<'X'\n$a\nX\n"),
        ("COPY <<X /y\n$z\nX\n", "COPY <<'X' /y\n$z\nX\n"),
        ("COPY <<X /y\n\tz\nX\n", "COPY <<-X /y\n\tz\nX\n"),
        ("CMD a\n", "ENTRYPOINT a\n"),
        ("CMD []\n", "CMD\n"),
    ],
)
def test_meaning_something_else_is_another_key(one: str, other: str) -> None:
    assert key_of(FROM + one) != key_of(FROM + other)


def test_a_key_is_the_same_in_every_version() -> None:
    """With another one, everybody would build and push all images again."""
    text = (
        f'{FROM}ARG A=1\nENV B=$A\nUSER 1\nWORKDIR /w\nSHELL ["bash", "-c"]\nLABEL a=1\nCMD []\n'
        "COPY --chown=1:1 <<-X <<'Y' /y/\n\tz\nX\n$b\nY\nRUN --network=none <<X\na\nX\n"
        f"FROM --platform=linux/arm64 python:3@{DIGEST}\nCOPY --from=0 /y /y\nEXPOSE 80/udp\n"
    )
    assert key_of(text) == "70434d0abdfa9e515f42b08ca110cfb4bc6e73ee1c2bc03d10aac76ece9c80f9"


def test_arguments_before_from_count_where_they_are_taken() -> None:
    assert key_of("ARG A=1\n" + FROM + "ARG A\nRUN $A\n") != key_of("ARG A=2\n" + FROM + "ARG A\nRUN $A\n")
    assert key_of("ARG A=1\n" + FROM + "RUN true\n") == key_of("ARG A=2\n" + FROM + "RUN true\n")


def test_the_platform_of_a_stage_counts() -> None:
    texts = [
        f"FROM {flag}python:3@{DIGEST}\nRUN true\n"
        for flag in ("", "--platform=linux/amd64 ", "--platform=linux/arm64 ")
    ]
    own, same, other = map(key_of, texts)
    assert own == same != other
    assert key_of(texts[2], platform="linux/riscv64") == other


def test_copied_stages_count() -> None:
    text = FROM + "RUN {}\nFROM scratch\nCOPY --from=a /x /x\n"
    assert key_of(text.format("a")) != key_of(text.format("b"))
    image = f"FROM scratch\nCOPY --from=other@{DIGEST} /x /x\n"
    assert key_of(image) != key_of(image.replace("abab", "cdcd"))


def test_mounts_count(folder: Path) -> None:
    before = scan(folder)
    (folder / "trainer" / "task.py").write_text("2")
    after = scan(folder)
    bound = FROM + "RUN --mount=type=bind,source=trainer,target=/t true\n"
    assert key_of(bound, before) != key_of(bound, after)
    cached = FROM + "RUN --mount=type=cache,target=/t true\n"
    assert key_of(cached, before) == key_of(cached, after)
    stage = FROM + "RUN {}\nFROM scratch\nRUN --mount=from=a,target=/a true\n"
    assert key_of(stage.format("a")) != key_of(stage.format("b"))


def test_the_order_of_wheels_on_disk_does_not_matter(folder: Path) -> None:
    plan = role_plan()
    context = scan(folder, only=("trainer",))
    text = parse(render(plan, roots=TemplateRoots(), key=None))
    forwards = context.with_bytes("wheels/cpu/a", b"a").with_bytes("wheels/cpu/b", b"b")
    backwards = context.with_bytes("wheels/cpu/b", b"b").with_bytes("wheels/cpu/a", b"a")
    assert stage_keys(text, forwards, "x", "gzip", {}) == stage_keys(text, backwards, "x", "gzip", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM python:3\n", "Dockerfile:1: FROM: python:3: an image without a digest"),
        (FROM + "COPY nothing /x\n", "Dockerfile:2: COPY: 'nothing' is not in the build context"),
        (FROM + "ADD https://x.example/a /x\n", "Dockerfile:2: ADD: 'https://x.example/a' is not in the build context"),
        (FROM + "COPY --from=alpine:3 /a /a\n", "Dockerfile:2: COPY: alpine:3: an image without a digest"),
    ],
)
def test_what_has_no_key(text: str, message: str) -> None:
    with pytest.raises(DockerfileError) as caught:
        key_of(text)
    assert message in str(caught.value)


def test_sources_of_a_file() -> None:
    text = FROM + 'COPY a "b" /x\nCOPY --from=a /c /c\nADD ["d e", "a", "/"]\nCOPY <<X /y\nz\nX\n'
    assert context_sources(parse(text).stages) == ("a", "b", "d e")


def test_a_source_with_a_variable_may_be_any_file(folder: Path) -> None:
    text = FROM + "ENV X=trainer\nCOPY $X /x\n"
    assert context_sources(parse(text).stages) == (".",)
    before = key_of(text, scan(folder))
    assert key_of(text.replace("$X", "trainer"), scan(folder)) != before
    (folder / "beside.txt").write_text("more\n")
    assert key_of(text, scan(folder)) != before
    assert context_sources(parse(FROM + "COPY a\\$b '$c' /x\n").stages) == ("a$b", "$c")


def test_quoted_sources(folder: Path) -> None:
    assert key_of(FROM + 'COPY "trainer" /x\n', scan(folder))
