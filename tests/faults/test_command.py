"""Groups O and P, as far as no service is needed: the command line, its streams, the folders it may not write."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.project import NOBODY, OLD_CONFIG, SPEC, Project
from training_imgtool.base import errors
from training_imgtool.base.settings import VARIABLES
from training_imgtool.cli.run import ReplicaLines

CHECKOUT = Path(__file__).resolve().parents[2]


def through(shell: str) -> tuple[str, ...]:
    """A shell line that starts the command, which is "$0" "$@" in it."""
    return ("bash", "-c", shell)


def codes_of_the_table() -> dict[int, str]:
    """The rows of docs/exit-codes.md: what is said of retrying, by code."""
    rows = re.findall(r"^\| (\d+) \|.*\| ?([^|]*?) ?\|$", (CHECKOUT / "docs/exit-codes.md").read_text(), re.MULTILINE)
    return {int(code): again for code, again in rows}


def test_the_documented_codes_are_those_of_the_errors() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ImgtoolError)]
    documented = codes_of_the_table()
    assert {kind.exit_code for kind in kinds} | {0, 129, 130, 141, 143} == set(documented)
    for kind in kinds:
        assert (documented[kind.exit_code] == "may succeed") is kind.retryable


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("biuld",), "imgtool has no verb biuld"),
        (("show", "--jsn"), "No such option: --jsn"),
        (("build", "--role", "chief"), "'chief' is not one of 'master', 'worker', 'ps', 'evaluator'"),
        (("build", "--role", "ps"), "the spec has no role ps: it has master, worker"),
        (("push", "--role", "ps", "--registry", "registry.example.com/x"), "the spec has no role ps"),
        (("push",), "image.yaml: no registry"),
        (("build", "--tag", "x"), "--tag names images in the registry"),
        (("build", "--engine", "podman"), "--engine podman: expected auto, buildx, direct"),
        (("build", "--push", "--output", "oci:x"), "give one"),
        (("build", "--output", "tar:x"), "--output tar:x: expected oci:DIR"),
        (("show", "--progress", "loud"), "--progress loud: expected auto, tty, plain, json, quiet"),
        (("config", "--format", "toml"), "--format toml: expected yaml, json, gcloud"),
        (("config", "--target", "mars"), "'mars' is not one of 'ai-platform'"),
        (("config", "--hosts", "x"), "--hosts: 'x' is not ROLE=HOST"),
        (("config",), "image.yaml: no registry"),
        (("push", "--password", "x"), "No such option: --password"),
        (("init", "--accelerator", "abacus"), "'abacus' is not one of 'cpu', 'gpu', 'tpu'"),
        (("show", "-f", "a.yaml", "b.yaml"), "-f a.yaml and b.yaml are two specs"),
        (("show", "-q", "-v"), "--quiet and --verbose contradict each other"),
        (("help", "psuh"), "imgtool has no verb psuh"),
        (("completion", "tcsh"), "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_usage(project: Project, arguments: tuple[str, ...], says: str) -> None:
    """Exit 2, before anything is asked: the engine and the registry of these projects do not exist."""
    verb_has_json = arguments[0] in {"show", "build", "push"}
    project.refused(*arguments, *(["--json"] if verb_has_json else []), code=2, says=[says])


def test_no_verb_prints_the_help(project: Project) -> None:
    ended = project.run()
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: imgtool ")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SOURCE_DATE_EPOCH", "yesterday", "SOURCE_DATE_EPOCH: 'yesterday' is not a number of seconds"),
        ("SOURCE_DATE_EPOCH", "-1", "SOURCE_DATE_EPOCH: '-1'"),
        ("IMGTOOL_MIRRORS", "docker.io", "IMGTOOL_MIRRORS: 'docker.io' is not HOST=HOST"),
        ("IMGTOOL_DEBUG", "maybe", "'maybe' is not a valid boolean"),
        ("IMGTOOL_LOCKED", "maybe", "'maybe' is not a valid boolean"),
        ("IMGTOOL_ATTESTATIONS", "maybe", "IMGTOOL_ATTESTATIONS: 'maybe' is neither on nor off"),
        ("IMGTOOL_PROGRESS", "loud", "--progress loud: expected auto"),
    ],
)
def test_c10_environment(project: Project, name: str, value: str, says: str) -> None:
    hint = name if name in {"IMGTOOL_DEBUG", "IMGTOOL_LOCKED"} else None
    project.refused("show", "--json", code=2, says=[says], hint=hint, env={name: value})


def test_locked(project: Project) -> None:
    project.write("image.yaml", SPEC.replace("3.11", "3.10"))
    says = ["image.lock is out of date: python changed, and --locked forbids writing it"]
    for arguments in (("show", "--locked", "--json"), ("render", "--locked"), ("lock", "--locked", "--json")):
        project.refused(*arguments, code=3, says=says, hint="run `imgtool lock`, then commit it")
    text = (project.folder / "image.lock").read_text()
    (project.folder / "image.lock").unlink()
    project.refused("show", "--locked", code=3, says=["image.lock is missing, and --locked forbids writing it"])
    project.write("image.lock", f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> theirs\n")
    project.refused("show", code=3, says=["image.lock: not a lock", "line 1"], hint="a merge conflict")


def test_o02_json_with_progress(project: Project) -> None:
    for mode in ("plain", "json", "quiet"):
        ended = project.run("show", "--json", "--progress", mode)
        assert ended.document["ok"] is True
    assert project.run("schema").document["title"]
    assert project.run("compat", "--json").document["ok"] is True


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--pull", "lock --upgrade"),
        ("--platform=x", "--set platform="),
        ("--psuh", "build --help"),
        ("--pul", "build --help"),
    ],
)
def test_no_likeness_suggests_to_publish(project: Project, word: str, hint: str) -> None:
    ended = project.refused("build", word, "--json", code=2, says=["No such option: --p"], hint=hint)
    assert ("--push" in ended.err) is (word == "--psuh")


def test_variables_stand_for_options(project: Project) -> None:
    (project.folder / "image.lock").unlink()
    project.refused("show", env={"IMGTOOL_LOCKED": "1"}, code=3, says=["image.lock is missing"])
    said = project.run("build", env={"IMGTOOL_LOCKED": "0", "IMGTOOL_ENGINE": "podman"})
    assert "--engine podman: expected" in said.err
    assert '"event"' in project.run("show", env={"IMGTOOL_PROGRESS": "json"}).err


def test_quiet_and_verbose(project: Project) -> None:
    """Verbose shows requests without their queries, quiet leaves warnings and errors; -f is the spec."""
    server = {"IMGTOOL_REGISTRY": "127.0.0.1:9/x"}
    loud = project.start("push", "-v", "-f", "image.yaml", env=server)
    told = loud.communicate(timeout=60)[1]
    assert b"Starting new HTTP connection" in told
    assert b"Traceback" in told
    unknown = {"IMGTOOL_UNKNOWN": "1"}
    assert "IMGTOOL_UNKNOWN is no variable" in project.run("show", env=unknown).err
    assert project.run("show", "-q", env=unknown).err == ""
    quiet = project.run("-q", "push", env=server)
    assert quiet.err.startswith("Error: ")
    assert quiet.code == loud.returncode != 0


def test_replicas_have_colours_where_they_are_wanted() -> None:
    for environ, coloured in (
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ):
        lines = ReplicaLines(io.StringIO(), environ, {})
        assert lines._colour is coloured


@pytest.mark.long
def test_o03_the_reader_goes(project: Project) -> None:
    """What was done stays done; the exit code is that of SIGPIPE, as in every pipe."""
    line = '"$0" "$@" | true; echo "${PIPESTATUS[0]}"'
    for arguments in (("show",), ("show", "--json"), ("schema",), ("--help",), ("compat",), ("--version",)):
        ended = project.run(*arguments, before=through(line))
        assert ended.out == "141\n", (arguments, ended)
        assert ended.err == ""
    assert project.run("compat", before=through('set -o pipefail; "$0" "$@" | head -1')).code in {0, 141}


def test_o03_a_failure_keeps_its_code(project: Project) -> None:
    ended = project.run("show", "nothere", "--json", before=through('"$0" "$@" | true; echo "${PIPESTATUS[0]}"'))
    assert ended.out == "3\n"
    assert "Error: nothere" in ended.err


@pytest.mark.parametrize("arguments", [("show", "--json"), ("--help",), ("schema",)])
@pytest.mark.parametrize(("redirect", "says"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")])
def test_o04_stdout_takes_nothing(project: Project, redirect: str, says: str, arguments: tuple[str, ...]) -> None:
    project.refused(*[word for word in arguments if word != "--json"], code=9, says=[says], before=_to(redirect))
    if "--json" in arguments:
        assert project.run(*arguments, before=_to(redirect)).code == 9


def _to(redirect: str) -> tuple[str, ...]:
    return through(f'exec "$0" "$@" {redirect}')


@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
def test_o04_a_failure_keeps_its_code(project: Project, redirect: str) -> None:
    ended = project.run("show", "nothere", "--json", before=_to(redirect))
    assert ended.code == 3
    assert "Error: nothere" in ended.err


def test_o04_closed_descriptors_are_not_used_for_files(project: Project) -> None:
    """A file opened while 1 is closed would get its number, and what is printed."""
    ended = project.run("render", "-o", "out", before=_to("<&- >&- 2>&-"))
    assert ended.code == 0
    assert (project.folder / "out/worker.Dockerfile").read_text().startswith("# Made by imgtool")
    assert project.config.read_text() == OLD_CONFIG


@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-"])
def test_o05_stderr_takes_nothing(project: Project, redirect: str) -> None:
    assert project.run("show", before=_to(redirect)).code == 0
    ended = project.run("show", "nothere", "--json", before=_to(redirect))
    assert (ended.code, ended.document["error"]["code"]) == (3, 3)


def test_o06_escapes_in_names(project: Project) -> None:
    project.refused("show", "\x1b]0;owned\x07\u202e", code=3, says=["\\x1b]0;owned\\x07\\u202e: no such file"])
    project.write("trainer/\x1b[2J.py", "x")
    project.refused("show", code=3, says=["without control characters"])


def test_p07_no_home(project: Project) -> None:
    for home in (None, "", "/nonexistent"):
        assert project.run("show", "--locked", env={"HOME": home, "IMGTOOL_CACHE": None}).code == 0


def test_p07_cache_that_cannot_be_written(project: Project) -> None:
    project.open_to_nobody()
    env = {"HOME": None, "IMGTOOL_CACHE": None}
    checks = project.run("doctor", "--json", env=env, before=NOBODY)
    assert checks.code == 9
    cache = next(check for check in checks.document["checks"] if check["name"] == "cache")
    assert (cache["ok"], cache["needed"]) == (False, True)
    assert cache["text"] == "cannot write to /nonexistent/.cache/imgtool: Permission denied"


def test_p07_folder_that_is_gone(project: Project) -> None:
    line = 'mkdir "$TMPDIR/gone"; cd "$TMPDIR/gone"; rmdir "$TMPDIR/gone"; exec "$0" "$@"'
    project.refused("show", "--json", code=9, says=["the current folder no longer exists"], before=through(line))


def test_p07_places_that_take_no_result(project: Project) -> None:
    """The place is looked at first: the spec of this project is not even read."""
    project.write("image.yaml", "broken: [")
    for place, says in (
        ("trainer", "cannot write trainer: it is a folder"),
        ("no/such.yaml", "cannot write no/such.yaml: there is no folder"),
        ("/dev/null", "cannot write /dev/null: it is not a regular file"),
        ("/proc/x.yaml", "cannot write /proc/x.yaml: "),
    ):
        project.refused("config", "-o", place, code=9, says=[says])


def test_p07_read_only_folder(project: Project) -> None:
    project.open_to_nobody()
    project.folder.chmod(0o555)
    project.config.chmod(0o444)
    says = ["cannot write config.yaml: permission denied"]
    project.refused("config", "-o", "config.yaml", code=9, says=says, hint="choose another place", before=NOBODY)


@pytest.mark.parametrize("limit", ["--as=60000000", "--nproc=1"])
def test_p11_little_memory_and_few_threads(project: Project, limit: str) -> None:
    """Where the limits leave enough to start, the end is a result or a message; processes count per user."""
    before = ("prlimit", limit, "--", *(NOBODY if limit.startswith("--nproc") else ()))
    ended = project.run("show", before=before)
    if ended.code:
        assert ended.code == 9, ended.err
        assert "refused imgtool more memory or another thread" in ended.err


def test_doctor_says_what_is_missing(project: Project) -> None:
    """Without an engine nothing that is needed is missing; with a broken login there is."""
    ended = project.run("doctor", "--json")
    assert (ended.document["ok"], "push needs neither engine nor builder" in ended.err) == (True, True)
    config = project.home / ".docker/config.json"
    config.write_text("{")
    ended = project.run("doctor", "--json", "--registry", "127.0.0.1:9/x")
    assert (ended.code, ended.document["ok"]) == (7, False)
    fixed = {
        "imgtool": True,
        "setting cache": True,
        "engine": False,
        "registry": False,
        "uv": True,
        "cache": True,
        "spec": True,
        "lock": True,
        "job": True,
    }
    checks = {check["name"]: check["ok"] for check in ended.document["checks"]}
    checks.pop("builder")  # buildx may be installed here
    assert checks == fixed
    (project.root / "imgtool").write_text("#!/bin/sh\necho MAME\n")
    (project.root / "imgtool").chmod(0o755)
    said = project.run("doctor", env={"PATH": f"{project.root}:{project.env['PATH']}"})
    assert f"{project.root}/imgtool is another program\n        the command training-imgtool starts imgtool" in said.out


def test_doctor_says_where_each_setting_comes_from_and_no_key_depends_on_one(project: Project) -> None:
    plain = project.run("show", "--json").document["roles"]
    file = project.home / ".config/imgtool/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('engine = "podman"\nprogress = "json"\nregistry = "127.0.0.1:9/x"\n')
    said = project.run("doctor").out
    assert f"setting progress: json ({file}:2)" in said
    assert f"setting cache: {project.cache} (IMGTOOL_CACHE)" in said
    assert f"127.0.0.1:9/x ({file}:3)" in said
    shown = project.run("show", "--json")
    assert shown.err.startswith('{"time"') or shown.err == ""
    assert [role["key"] for role in shown.document["roles"]] == [role["key"] for role in plain]
    assert "--engine podman: expected" in project.run("build").err
    assert "--engine podman" not in project.run("build", "--engine", "direct").err
    project.spec(f"registry: 127.0.0.1:7/y\n{SPEC}")
    assert "http://127.0.0.1:7" in project.run("push", env={"IMGTOOL_ENGINE": "direct"}).err
    file.write_text("registry = ")
    assert project.run("version").code == 0
    assert project.run("show").code == 2


def test_bugs_are_said_to_be_bugs(project: Project) -> None:
    """70, one shape with the others, and a traceback only for those who ask."""
    broken = "from training_imgtool.app import show; show.as_data = lambda inputs: 1 // 0"
    line = f"import sys; sys.argv[1:1] = []; {broken}; from training_imgtool.cli.main import main; main()"
    arguments = (sys.executable, "-c", line, "show", "--json")
    ended = project.run(before=arguments, bare=True)
    project.failed(ended, "--json", code=70, says=["this is a bug in imgtool: ZeroDivisionError"], hint="--verbose")
    process = subprocess.run(
        arguments,
        env={**project.env, "IMGTOOL_DEBUG": "1"},
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 70
    assert "Traceback" in process.stderr


@pytest.mark.parametrize("name", ["IMGTOOL_CA_FILE", "SSL_CERT_FILE"])
def test_p17_a_fifo_for_certificates_does_not_hang(project: Project, name: str) -> None:
    os.mkfifo(project.root / "ca.pem")
    env = {name: str(project.root / "ca.pem")}
    project.refused("lock", env=env, code=2, says=["ca.pem: expected a PEM file"], hint="IMGTOOL_CA_FILE")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("push", "--registry", "http://registry.example.com/x"), "--registry"),
        (("push", "--registry", "registry.example.com/x", "--role", "ps"), "the spec has no role ps"),
        (("push",), "no registry"),
        (("config", "--target", "vertex"), "no registry"),
        (("verify", "--accept", "all"), "--accept all: expected bytecode"),
        (("verify", "--role", "ps"), "the spec has no role ps"),
    ],
)
def test_usage_errors_come_before_any_effect(project: Project, arguments: tuple[str, ...], says: str) -> None:
    """Without a lock: making one would be the first thing that a run does."""
    (project.folder / "image.lock").unlink()
    project.refused(*arguments, code=2, says=[says])
    assert not (project.folder / "image.lock").exists()


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("lint -f config.yaml", "imgtool lint FILE"),
        ("lint --output json x", "--json prints"),
        ("render --format json", "imgtool render --help"),  # the verb has no --json
        ("config -n team", "--set job.namespace=NAME"),
        ("config --output json", "--format json chooses the format"),
        ("submit --dry-run=client", "imgtool submit --dry-run prints the commands, and takes no value"),
        ("submit --detach", "submit waits only with --wait"),
        ("push --no-cache", "imgtool build --no-cache"),
        ("biuld", "did you mean build?"),
        ("apply -f config.yaml", "imgtool submit submits the job"),
        ("login registry.example.com", "docker login HOST"),
        ("--json push", "write --json after the verb"),
        ("init --jax", "--jax VERSION: "),
        ("push --role master,worker", "--role master --role worker"),
        ("run --gpus all", "leave it out"),
        ("lock --upgrade pandas", "--upgrade-package pandas"),
        ("config --set roles.worker=4", "--set roles.worker.count=4"),
        ("config --set args=--epochs=1", "change args in the spec"),
        ("config --set roles.workers.count=4", "did you mean worker?"),
        ("run --worker 2", "--workers, or, to pass the option to your program, write -- --worker"),
    ],
)
def test_options_that_other_programs_have(project: Project, line: str, hint: str) -> None:
    project.refused(*line.split(), code=2, says=[], hint=hint)


def test_cures_on_the_command_line(project: Project) -> None:
    project.refused("run", "--epochs=1", code=2, says=["imgtool run has no option --epochs"], hint="-- --epochs=1")
    project.refused("lint", "image.yaml", code=3, says=["image.yaml is a spec"], hint="imgtool show image.yaml")
    project.refused("push", "--tag", "my tag", code=2, says=["'my tag' is not a tag"])
    ended = project.run("show", env={"IMGTOOL_MIRROR": "docker.io=x"})
    assert "note: IMGTOOL_MIRROR is no variable of imgtool: did you mean IMGTOOL_MIRRORS?" in ended.err
    (project.folder / "image.yaml").rename(project.folder / "image.yml")
    project.refused("show", code=2, says=["no image.yaml"], hint="name the spec: image.yml")


def test_every_variable_of_the_documentation_is_known() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/environment.md").read_text()
    assert set(re.findall(r"IMGTOOL_[A-Z_]+", text)) == set(VARIABLES)
