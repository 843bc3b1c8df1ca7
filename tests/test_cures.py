"""Every cure that a message spells out is taken by what refused: each "did you mean" and each "write" is fed back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.git_server import commit
from training_imgtool.app.machine import read_settings
from training_imgtool.base.context.dockerignore import parse_dockerignore
from training_imgtool.base.errors import FieldListError, ImgtoolError, InputError
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.jobs.tables import nearest
from training_imgtool.model.load import find, load
from training_imgtool.model.requirement_files import read_dependencies
from training_imgtool.model.requirements import find_unlockable_lines, parse_requirements
from training_imgtool.resolve.wheels.sources.git import Git

SPEC = {
    "name": "demo",
    "tensorflow": '"2.15.1"',
    "roles": "{master: {}, worker: {gpus: {type: NVIDIA_TESLA_V100, count: 1}}}",
    "trainer": "task.py",
}
PYPROJECT = '[project]\nname = "x"\ndependencies = ["private"]\n'
IMAGE = "gcr.io/a/b@sha256:" + "a" * 64
POOL = (
    "workerPoolSpecs:\n- machineSpec: {machineType: n1-standard-4}\n  replicaCount: 1\n"
    f"  containerSpec: {{imageUri: {IMAGE}}}\n"
)
JOB = f"{POOL}scheduling: {{timeout: 7200s}}\n"
OBJECT = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\n"

Reader = Callable[[Path, str], None]


def _spec(folder: Path, line: str) -> None:
    for name in ("task.py", "trainer/task.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("if __name__ == '__main__':\n    pass\n")
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


def _job(_folder: Path, text: str) -> None:
    for message in lint(text, "job.yaml"):
        if message.hint:
            raise InputError(message.message, hint=message.hint)


def _machine(_folder: Path, machine_type: str) -> None:
    if machine_type != "NVIDIA_TESLA_T4":
        raise InputError(machine_type, hint=nearest(machine_type, ["NVIDIA_TESLA_T4", "NVIDIA_L4"]))


def _variable(_folder: Path, name: str) -> None:
    notes: list[str] = []
    read_settings({name: "/tmp/x"}, notes.append)
    if notes:
        raise InputError(notes[0], hint=notes[0].partition(": ")[2])


def _requirement(_folder: Path, line: str) -> None:
    texts = (("requirements.txt", line),)
    if troubles := find_unlockable_lines(texts):
        raise InputError(troubles[0][1], hint=troubles[0][2])
    parse_requirements(texts)


def _pyproject(_folder: Path, tool: str) -> None:
    read_dependencies(PYPROJECT + tool, "pyproject.toml", extras=(), groups=())


def _revision(folder: Path, name: str) -> None:
    repository = folder / "repository"
    first = commit(repository, {"a.txt": name})
    git = Git({"PATH": os.environ["PATH"], "HOME": str(folder)})
    git.resolve(repository.as_uri(), {"COMMIT": first}.get(name, name))


# What reads it, what is refused, the cure, and what the cure makes of it.
CASES: list[tuple[Reader, str, str, str]] = [
    (_variable, "IMGTOOL_CAHCE", "did you mean IMGTOOL_CACHE?", "IMGTOOL_CACHE"),
    (_ignore, "*.{a,b}", "write ? in place of these characters", "*.?a,b?"),
    (
        _job,
        POOL.replace("Specs", "Spec"),
        "did you mean workerPoolSpecs?",
        POOL,
    ),
    *(
        (_job, JOB.replace("7200s", text), "write 3600s", JOB.replace("7200s", "3600s"))
        for text in ("3600", "1h", "60 min")
    ),
    (
        _job,
        POOL.replace("aa}", "aa, args: [2.10]}"),
        'write "2.10": gcloud reads YAML 1.1, in which this text without quotes means something else',
        POOL.replace("aa}", 'aa, args: ["2.10"]}'),
    ),
    (_job, OBJECT.replace("TFJob", "TFJb"), "did you mean TFJob?", OBJECT),
    (_job, OBJECT.replace("TFJob", "tfjob"), "did you mean TFJob?", OBJECT),
    (_machine, "NVIDIA_TESLA_T5", "did you mean NVIDIA_TESLA_T4?", "NVIDIA_TESLA_T4"),
    (_spec, "trim: yes", "write true", "trim: true"),
    (_spec, "accelerator: cuda", "did you mean gpu?", "accelerator: gpu"),
    (_spec, "job: {target: kubernetes}", "did you mean jobset?", "job: {target: jobset}"),
    (_spec, "job: {target: k8s}", "did you mean jobset?", "job: {target: jobset}"),
    (_spec, "job: {target: docker-compose}", "did you mean compose?", "job: {target: compose}"),
    (_spec, "job: {target: vertx}", "did you mean vertex?", "job: {target: vertex}"),
    (
        _spec,
        "roles: {master: {}, worker: {count: 2.0}}",
        "write a whole number, such as 2",
        "roles: {master: {}, worker: {count: 2}}",
    ),
    (_spec, "acelerator: gpu", "did you mean accelerator?", "accelerator: gpu"),
    (
        _spec,
        "job: {target: vertex, spot: true}",
        "write scheduling: {strategy: SPOT}",
        "job: {target: vertex, scheduling: {strategy: SPOT}}",
    ),
    *(
        (_spec, f"job: {{target: vertex, {key}: a}}", "did you mean id?", "job: {id: a}")
        for key in ("name", "job_id", "jobId")
    ),
    *(
        (_spec, f"{key}: {text}", f"write {cure}", f"{key}: {cure}")
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
    *(
        (_spec, f"{key}: {text}", f"write {cure}", f"{key}: {cure}")
        for key, text, cure in (
            ("roles", "[master, worker]", "{master: {}, worker: {}}"),
            ("env", "[A=b]", "{A: b}"),
            ("job", "vertex", "{target: vertex}"),
        )
    ),
    (_spec, "roles: {master: n1-high-2}", "write {machine: n1-high-2}", "roles: {master: {machine: n1-high-2}}"),
    (
        _spec,
        "roles: {master: {gpus: 'V100:2'}}",
        "write {type: NVIDIA_TESLA_V100, count: 2}",
        "roles: {master: {gpus: {type: NVIDIA_TESLA_V100, count: 2}}}",
    ),
    (_spec, "args: {epochs: 5}", "write one argument per item: ['--NAME=VALUE']", "args: ['--epochs=5']"),
    (_spec, "dependencies: [pandas]", "did you mean python_packages?", "python_packages: [pandas]"),
    (
        _spec,
        "registry: h.example/a:v1",
        "write h.example/a; imgtool push --tag v1 tags the images",
        "registry: h.example/a",
    ),
    (
        _spec,
        "files: {/etc/task.py: task.py}",
        "the file comes first, then its path in the image: {conf/app.yaml: /etc/app.yaml}",
        "files: {task.py: /etc/task.py}",
    ),
    (
        _spec,
        "trainer: {module: 'trainer.task:main'}",
        "to call a function of the module, write {module: MODULE, function: NAME}; to run a file, {script: FILE}",
        "trainer: {module: trainer.task, function: main}",
    ),
    (
        _spec,
        "trainer: src",
        "name the folder or the file with the code, such as `trainer: task.py`",
        "trainer: task.py",
    ),
    (_spec, "env: {A: @b}", "put the value in quotes", 'env: {A: "@b"}'),
    (_spec, "job: {secrets: [A]}", "write {A: {name: NAME}}", "job: {target: jobset, secrets: {A: {name: n}}}"),
    (
        _spec,
        "args: []\n<<<<<<< HEAD\nuser: a\n=======\nuser: b\n>>>>>>> other",
        "choose one side of the merge conflict, and remove the lines <<<<<<<, ======= and >>>>>>>",
        "user: a",
    ),
    (_spec, "env:\n\tA: b", "indent with spaces; YAML allows no tab there", "env:\n  A: b"),
    (_place, "jobset", "--target jobset chooses the job file's format", "images/mnist"),
    (_place, "a:/b", "--job-dir FOLDER mounts one folder, at /job and at the first of job.volumes", "images/mnist"),
    (_spec, "args: [a, ~]", 'write "~" for the word ~', 'args: [a, "~"]'),
    (_spec, "trainer: {script: tusk.py}", "did you mean task.py?", "trainer: task.py"),
    (
        _spec,
        "trainer: {source: trainer, module: trainer.tsk}",
        "did you mean trainer.task?",
        "trainer: {source: trainer, module: trainer.task}",
    ),
    (_place, "mnist", "did you mean FOLDER/images/mnist?", "images/mnist"),
    (_place, "image.yml", "did you mean FOLDER/image.yaml?", "image.yaml"),
    (
        _requirement,
        "pandas @ file:///home/conda/feedstock_root/pandas",
        "write NAME==VERSION; `pip list --format=freeze` prints such lines",
        "pandas==2.2.0",
    ),
    (
        _requirement,
        "git+ftp://h.example/a",
        "write git+https://HOST/PATH@COMMIT, or git+ssh://",
        f"git+https://h.example/a@{'0' * 40}",
    ),
    (_requirement, "-e /home/me/a", "write a relative path: ./FOLDER", "-e ./a"),
    (
        _requirement,
        "../../a b",
        "write NAME, ./FOLDER or git+https://HOST/PATH@COMMIT",
        "./a",
    ),
    (
        _requirement,
        "numpy==${VERSION}",
        "write the value itself, because a lock must not depend on a machine's variables",
        "numpy==1.26.4",
    ),
    (
        _requirement,
        "!pip install -U pandas",
        "write only what follows `pip install`, one line per package",
        "pandas",
    ),
    (
        _pyproject,
        '[tool.uv]\noverride-dependencies = ["numpy==1.26.4"]\n',
        "write the versions into a requirements file, such as NAME==VERSION or -c FILE",
        "",
    ),
    (
        _pyproject,
        "[tool.uv.sources]\nprivate = {workspace = true}\n",
        'write { path = "FOLDER" } or { git = "URL", rev = "COMMIT" }',
        '[tool.uv.sources]\nprivate = { path = "libs/private" }\n',
    ),
    (
        _spec,
        'env: {A: "x\\ny"}',
        "write the value on one line; `|` and `>` keep line breaks",
        "env: {A: x y}",
    ),
    (
        _spec,
        "requirements: task.pi",
        "did you mean task.py?",
        "requirements: task.py",
    ),
    (
        _revision,
        "nowhere",
        "write a full commit, a branch or a tag after the @",
        "COMMIT",
    ),
    (_spec, "args: !!seq [a]", "write the value without it; quote text", "args: [a]"),
    (
        _spec,
        f"args: [{'a, ' * 20_000}]",
        "write args and env in a file that the trainer reads",
        "args: [--args-file=args.json]",
    ),
    (_spec, "env: {<<: {A: b}}", "write the keys out", "env: {A: b}"),
]


@pytest.mark.parametrize(("reader", "refused", "cure", "cured"), CASES)
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
