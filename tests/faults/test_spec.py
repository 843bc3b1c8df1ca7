"""Group Y: what can be wrong with image.yaml. Exit 3, the place, what was found, what is expected; nothing is asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.project import NOBODY, SPEC, Project

LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 10)
)
MACHINES = "  master: {machine: n1-standard-4}\n  worker: {machine: n1-standard-4}\n"
AS_TYPED = ("on", "no", "0755", "22:22", "2024-01-02", "1_000", "12e5678", "1234567", ".inf", "3.10", "$HOME `x` #")


def refused(project: Project, text: str | bytes, *says: str, hint: str | None = None) -> None:
    """`show` refuses a spec of `text`."""
    project.spec(text, lock=False)
    project.refused("show", "--json", code=3, says=says, hint=hint)


def test_y01_no_spec(project: Project) -> None:
    (project.folder / "image.yaml").unlink()
    project.refused("show", code=2, says=["no image.yaml", "images/*/image.yaml"], hint="imgtool init")
    project.refused("push", "nothere", "--json", code=3, says=["nothere: no such file or folder"])


def test_y01_not_a_file(project: Project) -> None:
    spec = project.folder / "image.yaml"
    spec.unlink()
    spec.mkdir()
    project.refused("show", code=3, says=["image.yaml: expected a file, found a folder"])
    spec.rmdir()
    os.mkfifo(spec)
    project.refused("show", code=3, says=["found a FIFO"], timeout=10)


@pytest.mark.parametrize("text", ["", "# only this\n"])
def test_y01_empty(project: Project, text: str) -> None:
    refused(project, text, "image.yaml: the spec is empty")


def test_y01_unreadable(project: Project) -> None:
    project.open_to_nobody()
    (project.folder / "image.yaml").chmod(0)
    project.refused("show", code=3, says=["image.yaml: ", "permission denied"], before=NOBODY)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SPEC.replace("demo", "de\0mo").encode(), "a NUL at byte 8"),
        (SPEC.encode("utf-16"), "the file is UTF-16"),
        (SPEC.encode() + b"# \xff\n", "image.yaml:11:3: not UTF-8: byte 0xff"),
    ],
)
def test_y02_encoding(project: Project, text: bytes, says: str) -> None:
    refused(project, text, says)


def test_y02_byte_order_mark(project: Project) -> None:
    project.spec(b"\xef\xbb\xbf" + SPEC.encode())
    assert project.run("show").code == 0


def test_y03_tab(project: Project) -> None:
    refused(project, "name: demo\n\ttensorflow: x\n", "image.yaml:2:1: a tab", "→tensorflow", hint="spaces")


def test_y03_quote(project: Project) -> None:
    refused(project, 'name: "demo\ntensorflow: 1\n', "image.yaml:1:7: a quote is opened here", '\n  name: "demo\n')


def test_y04_duplicate_key(project: Project) -> None:
    refused(project, SPEC + "name: again\n", "image.yaml:11:1: the key 'name' is already given in line 1")


def test_y05_unquoted_version(project: Project) -> None:
    refused(
        project, SPEC.replace('"2.15.1"', "2.10"), "image.yaml:2:13: tensorflow", "such as \"2.15.1\", found '2.10'"
    )
    project.spec(SPEC.replace('"3.11"', "3.10"))
    shown = project.run("show", "--json").document
    assert {role["python"] for role in shown["roles"]} == {"3.10"}


def test_y06_text_as_typed(project: Project) -> None:
    rows = "".join(f"  A{number:02}: {text}\n" for number, text in enumerate(AS_TYPED))
    project.spec(f"{SPEC}env:\n{rows}")
    shown = project.run("show", "--json").document
    expected = [text.partition(" #")[0] for text in AS_TYPED]  # what YAML itself takes for a comment
    assert list(shown["roles"][0]["env"].values()) == expected
    refused(project, f"{SPEC}env: {{A: ~}}\n", "env.A: expected a value, found nothing", hint='write "~" for the word')


def test_y07_keys_that_are_no_text(project: Project) -> None:
    refused(project, "true: x\n1: y\n" + SPEC, "image.yaml:1:1: true: unknown key 'true'", "image.yaml:2:1: 1: unknown")
    refused(project, "? [a]\n: x\n" + SPEC, "image.yaml:1:3: a key must be text, found a list")


def test_y08_billion_laughs(project: Project) -> None:
    refused(project, LAUGHS + SPEC, "more than 10000 values (each alias counts as a copy)")


def test_y09_endless(project: Project) -> None:
    refused(project, "a: &a [*a]\n" + SPEC, "image.yaml:1:8: the alias *a is inside its own anchor")
    refused(project, "a: " + "[" * 5000 + "]" * 5000 + "\n" + SPEC, "nested deeper than 50 levels")
    counted = SPEC.replace("  worker: {", "  worker: {count: " + "9" * 5000 + ", ")
    refused(project, counted, "roles.worker.count: expected a whole number, at least 0, found '999")


def test_y10_tags(project: Project) -> None:
    refused(project, "name: !!python/object/apply:os.system [touch pwned]\n", "tags are not allowed", "os.system")
    assert not (project.folder / "pwned").exists()
    refused(project, SPEC.replace("demo", "!env HOME"), "image.yaml:1:7: tags are not allowed, found '!env'")


def test_y11_not_one_mapping(project: Project) -> None:
    refused(project, SPEC + "---\n" + SPEC, "image.yaml:11:1: a second document begins here", hint="delete `---`")
    refused(project, "- a\n", "expected a mapping", "found a list")
    refused(project, "hello\n", "expected a mapping", "found text")


def test_y12_unknown_key(project: Project) -> None:
    refused(
        project, SPEC.replace("trainer:", "trainr:"), "image.yaml:4:1: trainr: unknown key", hint="did you mean trainer"
    )


def test_y13_roles(project: Project) -> None:
    wrong = SPEC.replace("  worker:", "  wroker:")
    refused(project, wrong, "image.yaml:7:3: roles.wroker: unknown key", hint="did you mean worker?")
    refused(
        project,
        SPEC.replace(MACHINES, "  {}\n"),
        "roles: expected a master or workers, found no role",
        "master, worker, ps",
    )
    refused(
        project, SPEC.replace("  master:", "  ps:").replace("  worker:", "  evaluator:"), "expected a master or workers"
    )
    refused(project, SPEC.replace("  worker:", "  master:"), "the key 'master' is already given in line 6")


@pytest.mark.parametrize("name", ["Demo", "a//b", "-x", "a" * 300, "a@sha256"])
def test_y14_name(project: Project, name: str) -> None:
    refused(project, SPEC.replace("demo", name) + "registry: registry.example.com/team\n", ": name: ")


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


def test_y14_base(project: Project) -> None:
    refused(project, SPEC + "base: python@sha256:12\n", "image.yaml:11:7: base: 'sha256:12' is not a digest")
    refused(project, SPEC + f"base: python:{'x' * 129}\n", "base: ", "is not a tag")


def test_y14_tag(project: Project) -> None:
    for tag in ("-x", "a b", "x" * 129, "x" * 120, ""):
        arguments = ("push", "--registry", "registry.example.com/team", "--tag", tag, "--json")
        project.refused(*arguments, code=2, says=["--tag: ", "is not a tag"] if tag else ["--tag is empty"])


def test_y15_artifact_registry(project: Project) -> None:
    refused(
        project,
        SPEC + "registry: us-docker.pkg.dev/my-project\n",
        "expected LOCATION-docker.pkg.dev/PROJECT/REPO",
        hint="such as us-central1-docker.pkg.dev/my-project/training",
    )
    project.spec(SPEC)
    env = {"IMGTOOL_REGISTRY": "us-docker.pkg.dev/p"}
    project.refused("push", code=2, says=["IMGTOOL_REGISTRY: expected LOCATION-docker.pkg.dev"], env=env)


def test_y17_too_much(project: Project) -> None:
    refused(project, f"{SPEC}#{'x' * (1 << 20)}\n", "image.yaml: larger than 1048576 bytes")
    many = ", ".join(f"A{number}: x" for number in range(1500))
    refused(project, f"{SPEC}env: {{{many}}}\n", "env: expected at most 1000 variables, found 1500")


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("{DB_PASSWORD: s3cr3t-hunter2}", "env.DB_PASSWORD: the value looks like a secret"),
        ("{URL: 'https://me:s3cr3t-hunter2@x.example.com/'}", "env.URL: the value looks like a URL with a password"),
        ("{T: ghp_s3cr3thunter2s3cr3thunter2s3cr3thunter}", "env.T: the value looks like a GitHub token"),
        ('{K: "-----BEGIN PRIVATE KEY----- s3cr3t-hunter2"}', "env.K: the value looks like a private key"),
    ],
)
def test_y19_secret(project: Project, env: str, says: str) -> None:
    project.spec(f"{SPEC}env: {env}\n", lock=False)
    ended = project.refused("show", "--json", code=3, says=["image.yaml:11:", says], hint="allow_secrets")
    assert "hunter2" not in ended.out + ended.err


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
    if verb not in {"build", "push"}:
        several = project.run(verb, "--set", "user=1,2")
        assert (several.code, "only build and push take several variants" in several.err) == (2, True)
    assert sorted(path.name for path in project.folder.iterdir()) == before


def test_a_key_of_the_command_line_counts_for_show_and_render(project: Project) -> None:
    keys = [project.run("show", "--json", *more).document["roles"][0]["key"] for more in ((), ("--set", "user=1000"))]
    assert keys[0] != keys[1]
    assert "USER 1000" in project.run("render", "--set", "user=1000").out
