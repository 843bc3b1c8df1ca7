"""Every cure that a message spells out is taken by what refused: each "did you mean" and each "write" is fed back."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.package_graph import ROOT
from tests.servers.git_server import commit
from training_imgtool.cli import machine
from training_imgtool.context.dockerignore import parse_dockerignore
from training_imgtool.core.errors import FieldListError, ImgtoolError, InputError
from training_imgtool.dockerfile.parse import parse
from training_imgtool.dockerfile.render import _check_text
from training_imgtool.dockerfile.rules import check_rules
from training_imgtool.jobs.lint import lint
from training_imgtool.jobs.tables import nearest
from training_imgtool.spec.load import find, load
from training_imgtool.spec.requirements import find_unlockable_lines, parse_requirements, read_dependencies
from training_imgtool.wheels.sources.git import Git

SPEC = {
    "name": "demo",
    "tensorflow": '"2.15.1"',
    "roles": "{master: {}, worker: {gpus: {type: NVIDIA_TESLA_V100, count: 1}}}",
    "trainer": "task.py",
}
PYPROJECT = '[project]\nname = "x"\ndependencies = ["private"]\n'
JOB = "jobId: a\ntrainingInput: {scaleTier: BASIC, region: us-east1, scheduling: {maxWaitTime: 7200s}}\n"
OBJECT = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\n"
DIGEST = "@sha256:" + "ab" * 32

Reader = Callable[[Path, str], None]


def _spec(folder: Path, line: str) -> None:
    for name in ("task.py", "trainer/task.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("if __name__ == '__main__':\n    pass\n")
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\n[project.scripts]\ntrain-it = "trainer.task:main"\n')
    path = folder / "image.yaml"
    key, _, value = line.partition(": ")
    path.write_text("".join(f"{name}: {text}\n" for name, text in {**SPEC, key: value}.items()))
    load(path)


def _place(folder: Path, name: str) -> None:
    for place in ("image.yaml", "images/mnist/image.yaml"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).touch()
    find(folder / name if (folder / name).parent != folder or name.endswith("l") else Path(name), folder)


def _ignore(_folder: Path, line: str) -> None:
    parse_dockerignore(line)


def _text(_folder: Path, text: str) -> None:
    _check_text("labels.a", text)


def _dockerfile(_folder: Path, line: str) -> None:
    check_rules(parse(f"FROM scratch\nARG D\n{line}\n"))


def _job(_folder: Path, text: str) -> None:
    for message in lint(text, "job.yaml"):
        if message.hint:
            raise InputError(message.message, hint=message.hint)


def _machine(_folder: Path, machine_type: str) -> None:
    if machine_type != "NVIDIA_TESLA_T4":
        raise InputError(machine_type, hint=nearest(machine_type, ["NVIDIA_TESLA_T4", "NVIDIA_L4"]))


def _variable(_folder: Path, name: str) -> None:
    notes: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, "/tmp/x")
        machine.settings(note=notes.append)
    if notes:
        raise InputError(notes[0], hint=notes[0].partition(": ")[2])


def _requirement(_folder: Path, line: str) -> None:
    texts = (("requirements.txt", line),)
    if troubles := find_unlockable_lines(texts):
        raise InputError(troubles[0][1], hint=troubles[0][2])
    parse_requirements(texts)


def _list_of_packages(_folder: Path, name: str) -> None:
    parse_requirements(((name, "numpy==1.26.4"),))


def _pyproject(_folder: Path, tool: str) -> None:
    read_dependencies(PYPROJECT + tool, "pyproject.toml", extras=(), groups=())


def _revision(folder: Path, name: str) -> None:
    repository = folder / "repository"
    first = commit(repository, {"a.txt": name})
    git = Git({"PATH": os.environ["PATH"], "HOME": str(folder)})
    git.resolve(repository.as_uri(), {"COMMIT": first}.get(name, name))


# Where the cure is written, what reads it, what is refused, the cure, and what the cure makes of it.
CASES: list[tuple[str, Reader, str, str, str]] = [
    ("cli/machine settings", _variable, "IMGTOOL_CAHCE", "did you mean IMGTOOL_CACHE?", "IMGTOOL_CACHE"),
    ("context/dockerignore parse_dockerignore", _ignore, "*.{a,b}", "write ? in their place", "*.?a,b?"),
    ("dockerfile/render _check_text", _text, "a\nb", "write the text on one line", "a b"),
    (
        "dockerfile/rules _check_mounts",
        _dockerfile,
        "RUN --mount=src=$D,target=/d true",
        "write the path in the context, or the secret's id, as it is",
        "RUN --mount=src=data,target=/d true",
    ),
    (
        "dockerfile/rules _check_image",
        _dockerfile,
        "COPY --from=alpine:3 /a /b",
        "a tag can be moved: write REPOSITORY:TAG@sha256:…",
        f"COPY --from=alpine:3{DIGEST} /a /b",
    ),
    (
        "jobs/lint _check_unrecognized",
        _job,
        "trainingInputs: {}\njobId: a",
        "did you mean trainingInput?",
        "trainingInput: {scaleTier: BASIC, region: us-east1}\njobId: a",
    ),
    *(
        ("jobs/shapes _as_duration", _job, JOB.replace("7200s", text), "write 3600s", JOB.replace("7200s", "3600s"))
        for text in ("3600", "1h", "60 min")
    ),
    (
        "jobs/lint _with_bare_text",
        _job,
        JOB.replace("7200s}", "7200s}, runtimeVersion: 2.10"),
        'write "2.10": without quotes YAML 1.1, which gcloud reads, takes it for something else',
        JOB.replace("7200s}", '7200s}, runtimeVersion: "2.10"'),
    ),
    ("jobs/rules/kubernetes unknown_kind", _job, OBJECT.replace("TFJob", "TFJb"), "did you mean TFJob?", OBJECT),
    ("jobs/rules/kubernetes unknown_kind", _job, OBJECT.replace("TFJob", "tfjob"), "did you mean TFJob?", OBJECT),
    ("jobs/tables nearest", _machine, "NVIDIA_TESLA_T5", "did you mean NVIDIA_TESLA_T4?", "NVIDIA_TESLA_T4"),
    ("spec/decode convert", _spec, "trim: yes", "write true", "trim: true"),
    ("spec/decode convert", _spec, "accelerator: cuda", "did you mean gpu?", "accelerator: gpu"),
    ("spec/decode convert", _spec, "job: {target: kubernetes}", "did you mean jobset?", "job: {target: jobset}"),
    ("spec/decode convert", _spec, "job: {target: k8s}", "did you mean jobset?", "job: {target: jobset}"),
    ("spec/decode convert", _spec, "job: {target: docker-compose}", "did you mean compose?", "job: {target: compose}"),
    ("spec/decode convert", _spec, "job: {target: vertx}", "did you mean vertex?", "job: {target: vertex}"),
    (
        "spec/decode _convert_integer",
        _spec,
        "roles: {master: {}, worker: {count: 2.0}}",
        "write a whole number, such as 2",
        "roles: {master: {}, worker: {count: 2}}",
    ),
    ("spec/decode _report_unknown", _spec, "acelerator: gpu", "did you mean accelerator?", "accelerator: gpu"),
    (
        "spec/decode _report_unknown",
        _spec,
        "job: {target: vertex, spot: true}",
        "write scheduling: {strategy: SPOT}",
        "job: {target: vertex, scheduling: {strategy: SPOT}}",
    ),
    *(
        ("spec/decode _report_unknown", _spec, f"job: {{target: vertex, {key}: a}}", "did you mean id?", "job: {id: a}")
        for key in ("name", "job_id", "jobId")
    ),
    *(
        ("spec/decode _suggest_list", _spec, f"{key}: {text}", f"write {cure}", f"{key}: {cure}")
        for key, text, cure in (
            ("python_packages", "pandas, numpy", "['pandas', 'numpy']"),
            ("python_packages", "pandas>=2,<3", "['pandas>=2,<3']"),
            ("python_packages", "pandas,numpy", "['pandas', 'numpy']"),
            ("python_packages", "pandas", "['pandas']"),
            ("system_packages", "git curl", "['git', 'curl']"),
            ("system_packages", "git,curl", "['git', 'curl']"),
            ("args", "--epochs=10 --batch=2", "['--epochs=10', '--batch=2']"),
        )
    ),
    ("spec/decode _element", _spec, "args: [a, ~]", 'write "~" for the word ~', 'args: [a, "~"]'),
    ("spec/entry_point _existing", _spec, "trainer: {script: tusk.py}", "did you mean task.py?", "trainer: task.py"),
    (
        "spec/entry_point _missing_module",
        _spec,
        "trainer: {source: trainer, module: trainer.tsk}",
        "did you mean trainer.task?",
        "trainer: {source: trainer, module: trainer.task}",
    ),
    (
        "spec/entry_point find_console_script",
        _spec,
        "trainer: {source: ., script: trian-it}",
        "did you mean train-it?",
        "trainer: {source: ., script: train-it}",
    ),
    ("spec/load find", _place, "mnist", "did you mean FOLDER/images/mnist?", "images/mnist"),
    ("spec/load _near", _place, "image.yml", "did you mean FOLDER/image.yaml?", "image.yaml"),
    (
        "spec/requirements the module",
        _requirement,
        "pandas @ file:///home/conda/feedstock_root/pandas",
        "write NAME==VERSION; `pip list --format=freeze` prints such lines",
        "pandas==2.2.0",
    ),
    (
        "spec/requirements the module",
        _requirement,
        "git+ftp://h.example/a",
        "write git+https://HOST/PATH@COMMIT, or git+ssh://",
        f"git+https://h.example/a@{'0' * 40}",
    ),
    ("spec/requirements the module", _requirement, "-e /home/me/a", "write it relative: ./FOLDER", "-e ./a"),
    (
        "spec/requirements the module",
        _requirement,
        "../../a b",
        "write NAME, ./FOLDER or git+https://HOST/PATH@COMMIT",
        "./a",
    ),
    (
        "spec/requirements parse_requirements",
        _requirement,
        "numpy==${VERSION}",
        "write the value: a lock does not depend on a machine's variables",
        "numpy==1.26.4",
    ),
    (
        "spec/requirements _list_uv_options",
        _pyproject,
        '[tool.uv]\noverride-dependencies = ["numpy==1.26.4"]\n',
        "write the versions into a requirements file, such as NAME==VERSION or -c FILE",
        "",
    ),
    (
        "spec/requirements _add_source",
        _pyproject,
        "[tool.uv.sources]\nprivate = {workspace = true}\n",
        'write { path = "FOLDER" } or { git = "URL", rev = "COMMIT" }',
        '[tool.uv.sources]\nprivate = { path = "libs/private" }\n',
    ),
    (
        "spec/value_rules check_text",
        _spec,
        'env: {A: "x\\ny"}',
        "write the value on one line; `|` and `>` keep line breaks",
        "env: {A: x y}",
    ),
    (
        "spec/value_rules _expect_names",
        _spec,
        "requirements: task.pi",
        "did you mean task.py?",
        "requirements: task.py",
    ),
    (
        "wheels/sources/git resolve",
        _revision,
        "nowhere",
        "write a full commit, a branch or a tag after the @",
        "COMMIT",
    ),
    ("yamlfile/reader the module", _spec, "args\nenv: {}", "write `key: value`", "args: []"),
    ("yamlfile/tree _begin", _spec, "args: !!seq [a]", "write the value without it; quote text", "args: [a]"),
    (
        "yamlfile/tree _count",
        _spec,
        f"args: [{'a, ' * 20_000}]",
        "write args and env in a file that the trainer reads",
        "args: [--args-file=args.json]",
    ),
    ("yamlfile/tree _check_key", _spec, "env: {<<: {A: b}}", "write the keys out", "env: {A: b}"),
]


# Fed back where what they need is: tests/lock/test_code.py builds wheels, tests/pipeline/test_trainer_check.py has
# imports, tests/integration/test_gcloud.py makes its commands of documents that are files already.
ELSEWHERE = {"lock/code build": 1, "pipeline/trainer_check _check_import": 2, "jobs/gcloud the module": 1}
NO_CURES = {"cli/config config", "commands/init _write_job_dir"}  # an option's help, a comment in a first spec


@pytest.mark.parametrize(("reader", "refused", "cure", "cured"), [case[1:] for case in CASES])
def test_a_cure_is_taken(tmp_path: Path, reader: Reader, refused: str, cure: str, cured: str) -> None:
    with pytest.raises(ImgtoolError) as caught:
        reader(tmp_path, refused)
    errors = caught.value.errors if isinstance(caught.value, FieldListError) else [caught.value]
    assert [error.hint for error in errors] == [cure.replace("FOLDER/", f"{tmp_path}/")]
    reader(tmp_path, cured)


def test_what_no_list_can_hold_has_no_cure(tmp_path: Path) -> None:
    with pytest.raises(FieldListError) as caught:
        _spec(tmp_path, "system_packages: 'Git!'")
    assert [error.hint for error in caught.value.errors] == [None]


def test_each_cure_of_the_code_is_among_them() -> None:
    written = Counter(place for path in sorted(ROOT.rglob("*.py")) for place in _cures(path))
    tried = Counter(place for place, *_ in CASES) + Counter(ELSEWHERE) + Counter(NO_CURES)
    assert not written - tried
    assert written.keys() == tried.keys()


def _cures(path: Path) -> Iterator[str]:
    """Yields where a module spells out a cure: its path, and the function that does."""
    module = path.relative_to(ROOT).with_suffix("").as_posix()
    places: list[tuple[ast.AST, str]] = [(ast.parse(path.read_text()), "the module")]
    while places:
        node, function = places.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            text = child.value if isinstance(child, ast.Constant) else None
            if isinstance(text, str) and re.match(r"(?:.*: )?(?:did you mean|write) ", text):
                yield f"{module} {function}"
            places.append((child, child.name if isinstance(child, ast.FunctionDef) else function))
