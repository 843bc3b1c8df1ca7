"""Secrets given wrongly are in no message, document or log. Other wrong values are: people must see their mistake."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.faults.project import SPEC, Project
from tests.servers.scripted import Asked, Reply, ScriptedServer

PW = "hunter2Q8z"
KEY = "gh" + "p_" + PW * 3
FORMS = (("--json",), ("-v",))  # with --json, stderr has the text


@dataclass(frozen=True)
class Wrong:
    """A command that must fail, or end without the secret in what it prints."""

    words: tuple[str, ...] = ("show",)
    env: dict[str, str] = field(default_factory=dict)
    spec: str = ""
    files: dict[str, str] = field(default_factory=dict)


def _set(text: str, verb: str = "show") -> Wrong:
    return Wrong((verb, "--set", text))


HELPERS = {
    "helper says": f"#!/bin/sh\necho 'error: bad password {PW}'; exit 1\n",
    "helper names": f"#!/bin/sh\necho 'login failed: token={PW}' >&2; exit 1\n",
    "helper's URL": f"#!/bin/sh\necho 'cannot reach https://me:{PW}@vault/x'; exit 3\n",
    "helper's JSON": f'#!/bin/sh\necho \'{{"Username": "me", "Secret": "{PW}"\'\n',
}
SECRETS: dict[str, Wrong] = {
    "env": _set(f"env.DB_PASSWORD={PW}"),
    "env, push": _set(f"env.DB_PASSWORD={PW}", "push"),
    "env, run": _set(f"env.API_KEY={PW}", "run"),
    "env, verify": _set(f"env.API_KEY={PW}", "verify"),
    "registry": _set(f"registry=u:{PW}@h.example/x"),
    "base": _set(f"base=u:{PW}@h.example/x"),
    "job.env": _set(f"job.env.API_KEY={PW}"),
    "role's env": _set(f"roles.master.env.AUTH_TOKEN={PW}xxxx"),
    "args": _set(f'args=["--token={PW}xxxx"]'),
    "env as a mapping": _set(f'env={{"A":"https://u:{PW}@h"}}'),
    "unknown key": _set(f"db_password={PW}"),
    "unknown key below": _set(f"trainer.password={PW}"),
    "no equals sign": _set(f"https://u:{PW}@h"),
    "a token as a key": _set(f"{KEY}"),
    "a token": _set(f"name={KEY}"),
    "twice": Wrong(("show", "--set", f"env.A={KEY}", "--set", f"env.A={KEY}")),
    "a token in args": _set(f"args={KEY}"),
    "option registry": Wrong(("push", "--registry", f"https://u:{PW}@h/x")),
    "option registry without scheme": Wrong(("push", "--registry", f"u:{PW}@h/x")),
    "unknown option": Wrong(("push", f"--db-password={PW}")),
    "unknown verb": Wrong((f"https://u:{PW}@h/x",)),
    "spec as a URL": Wrong(("show", f"https://u:{PW}@h/x.yaml")),
    "role": Wrong(("push", "--role", KEY)),
    "tag": Wrong(("push", "--tag", f"https://u:{PW}@h/x")),
    "builder": Wrong(("push", "--builder", f"tcp://u:{PW}@h", "--registry", "127.0.0.1:9/x")),
    "variable registry": Wrong(("push",), {"IMGTOOL_REGISTRY": f"u:{PW}@h/x"}),
    "variable mirrors": Wrong(("push", "--registry", "127.0.0.1:9/x"), {"IMGTOOL_MIRRORS": f"https://u:{PW}@h"}),
    "variable mirror's login": Wrong(("push",), {"IMGTOOL_MIRRORS": f"docker.io=u:{PW}@127.0.0.1:9"}),
    "variable Debian": Wrong(("show",), {"IMGTOOL_DEBIAN_MIRRORS": f"http://u:{PW}@h"}),
    "variable switch": Wrong(("show",), {"IMGTOOL_ATTESTATIONS": KEY}),
    "variable proxy": Wrong(
        ("push", "--registry", "h.example/x"), {"HTTPS_PROXY": f"http://u:{PW}@127.0.0.1:9", "NO_PROXY": ""}
    ),
    "variable date": Wrong(("show",), {"SOURCE_DATE_EPOCH": KEY}),
    "unknown variable": Wrong(("pushh",), {"IMGTOOL_PASSWORD": PW}),
    "variable host": Wrong(("run",), {"DOCKER_HOST": f"ssh://u:{PW}@127.0.0.1"}),
    "spec's env": Wrong(spec=f"env: {{DB_PASSWORD: {PW}}}\n"),
    "spec's key": Wrong(spec=f"env: {{{KEY}: x}}\n"),
    "spec's unknown key": Wrong(spec=f"{KEY}: x\n"),
    "spec's files": Wrong(spec=f"files: {{one: 'https://u:{PW}@h/x'}}\n"),
    "spec's label": Wrong(spec=f"  labels: {{token: {PW}xxxx}}\n"),
    "requirements": Wrong(
        ("lock",), files={"req.txt": f"six==1 ;;; https://u:{PW}@h\n"}, spec="requirements: req.txt\n"
    ),
    "requirements, long": Wrong(
        ("lock",), files={"req.txt": f"six==1 ;;;{' ' * 35}https://u:{PW}@h\n"}, spec="requirements: req.txt\n"
    ),
    "file": Wrong(("show", "-f", f"u:{PW}@h.yaml")),
    "config.toml": Wrong(
        files={"../home/.config/imgtool/config.toml": f'registry = "https://u:{PW}@h/x"\n'}, words=("push",)
    ),
    "config.toml's key": Wrong(files={"../home/.config/imgtool/config.toml": f'{KEY} = "x"\n'}),
    "config.toml's list": Wrong(files={"../home/.config/imgtool/config.toml": f'mirrors = "https://u:{PW}@h"\n'}),
    "Docker's config": Wrong(
        ("push", "--registry", "h.example/x"),
        files={"../home/.docker/config.json": json.dumps({"credsStore": KEY})},
    ),
}
ORDINARY: dict[str, tuple[Wrong, str]] = {
    **{
        f"set {text}": (_set(text), text.partition("=")[2])
        for text in (
            "python=9.9x", "tensorflow=latest", "platform=linux/mips", "accelerator=cuda", "compression=brotli",
            "user=a b", "roles.worker.count=many", "roles.worker.machine_type=n1", "job.target=vertexx", "trim=yess",
            "name=Not A Name", "registry=https://h.example/x", "registry=h.example/x/", "base=UPPER/x",
            "job.region2=mars", "env.A B=x1y2", "job.grace_period=soon", "cuda_from=nowhere", "attestations=perhaps",
            "job.scheduling.max_wait=3600", "roles.boss.count=1", "key_words=abc123def456", "monkey=banana12345678",
            "args=plain words", "exclude=../up", "system_packages=UPPER", "python_packages=!bad",
        )
    },
    **{
        f"option {words[-1]}": (Wrong(words), words[-1].lstrip("-"))
        for words in (
            ("push", "--role", "bosss"), ("push", "--registry", "HTTP//x"), ("push", "--tag", "no tag"),
            ("show", "no-such-folder"), ("pushh",), ("push", "--colour"), ("push", "--progress", "loudd"),
            ("lint", "missing.yaml"), ("push", "--engine", "podmann"), ("verify", "--accept", "bytecodes"),
        )
    },
    **{
        f"variable {name}": (Wrong(("push",), {name: text}), text)
        for name, text in {
            "IMGTOOL_MIRRORS": "docker.io", "IMGTOOL_ATTESTATIONS": "perhaps", "SOURCE_DATE_EPOCH": "yesterday",
            "IMGTOOL_DEBIAN_MIRRORS": "http://deb.example", "IMGTOOL_REGISTRY": "http://h.example/x",
        }.items()
    },
}  # fmt: skip


def _run(project: Project, wrong: Wrong, form: tuple[str, ...]) -> tuple[int, str]:
    for name, text in wrong.files.items():
        project.write(name, text)
    project.spec(SPEC + wrong.spec, lock=False)
    return _said(project, *wrong.words, *form, env=wrong.env)


def _said(project: Project, *words: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """The exit code, and what the command wrote; with -v also a traceback."""
    process = project.start(*words, env=env)
    out, err = process.communicate(timeout=60)
    return process.returncode, (out + err).decode()


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_given_wrongly_is_not_printed(project: Project, name: str) -> None:
    for form in FORMS:
        code, said = _run(project, SECRETS[name], form)
        assert code, said[-999:]
        assert PW not in said, said[-999:]


@pytest.mark.parametrize("name", HELPERS)
def test_what_a_helper_says_is_printed_without_secrets(project: Project, name: str) -> None:
    program = project.write("../home/bin/docker-credential-team", HELPERS[name])
    program.chmod(0o755)
    project.write("../home/.docker/config.json", json.dumps({"credsStore": "team"}))
    for form in FORMS:
        env = {"PATH": f"{program.parent}:{project.env['PATH']}"}
        code, said = _said(project, "push", "--registry", "127.0.0.1:9/x", *form, env=env)
        assert code == 7, said[-999:]
        assert PW not in said, said[-999:]


SERVERS: dict[str, Callable[[str], str]] = {
    "header": lambda header: f"denied: {header}",
    "login": lambda header: f"denied for {base64.b64decode(header.partition(' ')[2]).decode()}",
    "password": lambda header: f"no: {base64.b64decode(header.partition(' ')[2]).decode().partition(':')[2]} is wrong",
    "URL": lambda header: f"use https://{base64.b64decode(header.partition(' ')[2]).decode()}@h/x",
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_login_that_a_server_repeats_is_not_printed(project: Project, name: str) -> None:
    def answer(asked: Asked) -> Reply:
        header = asked.headers.get("authorization", "")
        if not header.startswith("Basic "):
            return Reply(401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        body = json.dumps({"errors": [{"code": "DENIED", "message": SERVERS[name](header)}]}).encode()
        return Reply(403, body, {"Content-Type": "application/json"})

    with ScriptedServer(answer) as server:
        auth = base64.b64encode(f"robot:{PW}".encode()).decode()
        project.write("../home/.docker/config.json", json.dumps({"auths": {server.host: {"auth": auth}}}))
        for form in FORMS:
            code, said = _said(project, "push", "--registry", f"{server.host}/x", *form)
            assert code, said[-999:]
            assert not [word for word in (PW, auth) if word in said], said[-999:]


@pytest.mark.parametrize("name", ORDINARY)
def test_another_wrong_value_is_printed(project: Project, name: str) -> None:
    wrong, shown = ORDINARY[name]
    for form in FORMS:
        code, said = _run(project, wrong, form)
        assert code, said[-999:]
        assert shown in said, said[-999:]
