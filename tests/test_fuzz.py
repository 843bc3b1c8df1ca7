"""Every reader of foreign bytes, fed with damaged samples of what it reads: errors with words, and each in a moment.

`make test` gives each reader a moment, `make long` five seconds, `make campaign` five minutes.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import signal
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from imgtool_debian_layers.alternatives import parse_group
from imgtool_debian_layers.certificates import hash_subject
from imgtool_debian_layers.database import parse_stanzas
from imgtool_debian_layers.errors import DebianError
from imgtool_debian_layers.loader_cache import read_cache
from imgtool_debian_layers.package_file import read_control, read_files
from imgtool_project_reader.read import read_project
from tests.base.http.bytes_server import Bytes, ask, content
from tests.debian_layers.packages import make_package
from tests.model.recipe.test_printing import USERS_TEMPLATE, of_template
from tests.oci.direct.tars import archive
from tests.spec_samples import GOOD
from training_imgtool.app.init_knowledge import _read_yaml
from training_imgtool.base import wheel_zip
from training_imgtool.base.context.dockerignore import parse_dockerignore
from training_imgtool.base.context.python_source import read_source
from training_imgtool.base.context.secret_files import by_content
from training_imgtool.base.elf import read_library
from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.http.addresses import next_url, origin_of
from training_imgtool.base.http.client import Answer
from training_imgtool.base.http.retry import PassingError, retry_after
from training_imgtool.base.reference import parse_reference
from training_imgtool.base.settings import from_environment
from training_imgtool.base.yamlfile.reader import parse
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.model.load import load
from training_imgtool.model.recipe.printing import _check_secrets
from training_imgtool.model.requirement_files import read_dependencies
from training_imgtool.model.requirements import find_unlockable_lines, list_code, parse_requirements
from training_imgtool.oci.image.image import read_config
from training_imgtool.oci.image.oci_layout import name_image
from training_imgtool.oci.layers.layer_cache import read_records
from training_imgtool.oci.layers.tar_reader import read_layer_tree
from training_imgtool.oci.registry.auth import logins
from training_imgtool.oci.registry.auth.challenges import parse_challenges, parse_scope
from training_imgtool.oci.registry.failures import server_text
from training_imgtool.oci.registry.manifests import OCI_INDEX, OCI_MANIFEST, choose, parse_manifest, parse_platform
from training_imgtool.resolve.lock.parse import parse_lock
from training_imgtool.resolve.versions.closure import find_broken, parse_metadata
from training_imgtool.resolve.wheels.index.page import PageError, parse_page
from training_imgtool.resolve.wheels.index.pip_config import make_uv_environ

Read = Callable[[bytes, Path], object]
GOLDEN = Path(__file__).parent / "golden"
SLOWEST = 10.0  # seconds of one example on a busy machine
DIGEST = f"sha256:{'a' * 64}"
_ENTRY = {"mediaType": OCI_MANIFEST, "digest": DIGEST, "size": 7, "platform": {"os": "linux", "architecture": "amd64"}}
_MANIFEST = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": _ENTRY, "layers": [_ENTRY, _ENTRY]}
_INDEX = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [_ENTRY]}
_CONFIG = {
    "architecture": "amd64",
    "config": {"Env": ["A=b"], "Cmd": ["x"], "Labels": {"a": "b"}, "ExposedPorts": {"80/tcp": {}}},
    "history": [{"created_by": "x", "empty_layer": True}],
    "os": "linux",
    "rootfs": {"type": "layers", "diff_ids": [DIGEST]},
}
_WORDS = (
    *(
        b"1" * 5000,
        b"9" * 19,
        b"-1",
        b"0",
        b"1e999",
        b"NaN",
        b"null",
        b"true",
        b'""',
        b"''",
        b"\0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
    ),
    *(
        b"[",
        b"{",
        b"]",
        b"}",
        b"(",
        b"<",
        b"&a",
        b"*a",
        b"<<: *a",
        b"!!python/name:x",
        b"!!binary",
        b"? ",
        b"- ",
        b"|",
        b">",
    ),
    *(
        b"\n",
        b"\r\n",
        b"\r",
        b"\t",
        b" ",
        b"\\",
        b'"',
        b"'",
        b"#",
        b"%",
        b"$",
        b"${A",
        b"~",
        b"..",
        b"../",
        b"/",
        b"//",
        b"\xc2\x85",
    ),
    *(
        b"*",
        b"**/",
        b"[!a",
        b"?",
        b",",
        b";",
        b":",
        b"=",
        b"==",
        b">=",
        b"@",
        b"{%",
        b"{{",
        b"a" * 3000,
        b"sha256:",
        b"file:",
    ),
    *(
        b"-r x",
        b"-e .",
        b"--hash=",
        b"; python_version<",
        b"&x [*x,*x]",
        b"http://[::1",
        b"\xe2\x80\xa8",
        b"18446744073709551616",
    ),
)


def _text(read: Callable[[str], object]) -> Read:
    return lambda data, _: read(data.decode("utf-8", "replace"))


def _file(name: str, read: Callable[[Path], object]) -> Read:
    def write(data: bytes, folder: Path) -> object:
        (folder / name).write_bytes(data)
        return read(folder)

    return write


def _wheel(data: bytes, folder: Path) -> None:
    path = folder / "a.whl"
    path.write_bytes(data)
    wheel = wheel_zip.open_wheel(path, hashlib.sha256(data).hexdigest())
    for member in wheel.members:
        wheel_zip.read(wheel, member)


def _manifest(data: bytes, _: Path) -> None:
    for kind in (OCI_MANIFEST, OCI_INDEX):
        with suppress(ImgtoolError):
            found = parse_manifest(data, kind, "image")
            if found.is_index:
                choose(found, parse_platform("linux/amd64"), "image")


def _requirements(text: str) -> None:
    texts = (("requirements.txt", text),)
    find_unlockable_lines(texts)
    list_code(texts)
    parse_requirements(texts)


def _closure(text: str) -> None:
    list(find_broken([parse_metadata(text), parse_metadata("Name: b\nVersion: 1\n")], {"python_version": "3.11"}))


def _login(folder: Path) -> None:
    config = logins.read_config(folder)
    assert config is not None
    logins.stored_login(config, "example.com")
    logins.helper_for(config, "example.com")


def _head(data: bytes, _: Path) -> None:
    with Bytes(data, hang_up_after=True) as server:
        content(ask(server, server.client(idle=1)))


def _deb(folder: Path) -> None:
    read_control(folder / "a.deb")
    list(read_files(folder / "a.deb"))


def _location(text: str) -> None:
    next_url("https://a.example/v2/", text, origin_of("https://a.example"), "it")


def _allow(read: Read, *errors: type[Exception]) -> Read:
    """For readers whose own errors their callers know."""

    def allowing(data: bytes, folder: Path) -> None:
        with suppress(*errors):
            read(data, folder)

    return allowing


def _answer(data: bytes, _: Path) -> None:
    server_text(Answer("GET", "http://example.com", 500, {}, (), data))


def _spec(folder: Path) -> None:
    (folder / "trainer").mkdir(exist_ok=True)
    (folder / "trainer/task.py").touch()
    load(folder / "image.yaml")


def _project(name: str) -> Read:
    return _file(name, lambda folder: read_project(folder, _read_yaml))


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("a/b.py", "x = 1\n" * 50)
        made.writestr("a-1.dist-info/METADATA", "Name: a\nVersion: 1\n")
    return stream.getvalue()


_REQUIREMENTS = b"numpy>=1.2,<2; python_version<'3.12'\n-r more.txt\npandas[x]==1.0 --hash=sha256:aa \\\n  # c\ngit+https://x/y@z#egg=z\n"
_METADATA = (
    b"Metadata-Version: 2.1\nName: a\nVersion: 1.0\nRequires-Dist: b<2; extra == 'x'\nRequires-Python: >=3.8\n\ntext\n"
)
_CHALLENGE = b'Bearer realm="https://a/t",service="s",scope="repository:a/b:pull,push", Basic realm="x"'
_DOCKERFILE = b'FROM a AS image\nARG Q=1\nENV A="$Q" B=${Q:-x}\nRUN --mount=type=cache \\\n  curl -u a:$Q\nCMD ["a"]\n'
_SETTINGS = b"[global]\nindex-url = https://u:p@x/simple\nextra-index-url =\n  https://y\n[install]\nno-index = true\n"
READERS: dict[str, tuple[Read, tuple[bytes | str, ...]]] = {
    "tar": (lambda data, _: read_layer_tree([data]), (archive("a/", "a/b", "l -> a"), archive("a/" + "b" * 200))),
    "wheel": (_wheel, (_zip(), _zip().replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\x48"))),
    "manifest": (_manifest, (json.dumps(_MANIFEST), json.dumps(_INDEX))),
    "image-config": (lambda data, _: read_config(data), (json.dumps(_CONFIG),)),
    "oci-layout": (_file("index.json", lambda folder: name_image(folder, DIGEST, "x")), (json.dumps(_INDEX),)),
    "records": (_text(lambda text: read_records({"dev.imgtool.records": text})), ('{"a": "{\\"key\\": \\"a\\"}"}',)),
    "yaml": (lambda data, _: parse(data, "a.yaml"), ("a: &a [1, {b: c}]\nd: *a\ne: |\n  x\n", "- 'a'\n- \"b\\x41\"\n")),
    "spec": (_file("image.yaml", _spec), (*GOOD.values(),)),
    "job": (
        _text(lambda text: lint(text, "a.yaml")),
        tuple(path.read_bytes() for path in sorted(GOLDEN.glob("jobs/*"))),
    ),
    "lock": (
        lambda data, _: parse_lock(data, "image.lock"),
        ("version = 4\n[[variants]]\nname = 'cpu'\nwheels = [{file='a'}]\n",),
    ),
    "pyproject": (
        _text(lambda text: read_dependencies(text, "pyproject.toml", extras=("x",), groups=("y",))),
        (
            "[project]\nname='a'\ndependencies=['b>1']\n[project.optional-dependencies]\nx=['c']\n[dependency-groups]\ny=['d']\n",
        ),
    ),
    "requirements": (_text(_requirements), (_REQUIREMENTS,)),
    "metadata": (_text(_closure), (_METADATA,)),
    "dockerignore": (
        _text(lambda text: parse_dockerignore(text).decide("aaaa/bbbb/" + "a" * 60, None)),
        (b"**/*a*b\n!a/[a-c]?/*\n# x\n\\#y\n",),
    ),
    "page-json": (
        lambda data, _: parse_page(data, "application/json", "https://x/"),
        ('{"files": [{"filename": "a-1-py3-none-any.whl", "url": "a", "hashes": {"sha256": "aa"}, "yanked": false}]}',),
    ),
    "page-html": (
        lambda data, _: parse_page(data, "text/html", "https://x/"),
        (b'<!DOCTYPE html><a href="a-1-py3-none-any.whl#sha256=aa" data-requires-python="&gt;=3">a</a><![x[]]>',),
    ),
    "head": (
        _head,
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
    ),
    "challenge": (_text(lambda text: (parse_challenges([text]), parse_scope(text))), (_CHALLENGE,)),
    "retry-after": (_text(lambda text: retry_after(text, 0)), ("120", "Wed, 21 Oct 2015 07:28:00 GMT")),
    "error-body": (
        _answer,
        ('{"errors": [{"code": "DENIED", "message": "no", "detail": {"a": 1}}]}', "<html><p>no</p>"),
    ),
    "reference": (_text(parse_reference), (f"a.example:5000/b/c:d@{DIGEST}", "https://u:p@x/y")),
    "url": (_text(_location), ("https://u:p@[::1]:80/x?y#z", "../v2/")),
    "template": (_text(lambda text: _check_secrets(text, "own.j2", ("env.A",))), (_DOCKERFILE,)),
    "jinja": (
        lambda data, folder: of_template(folder, data.decode("utf-8", "replace").replace("\0", "")),
        (USERS_TEMPLATE,),
    ),
    "secret": (
        lambda data, _: [by_content(f"a.{kind}", data) for kind in ("py", "yaml", "txt")],
        (_SETTINGS, b"token = 'a1'\n"),
    ),
    "source": (
        _allow(
            lambda data, _: read_source(data, "a.py", (3, 11)), SyntaxError, ValueError, RecursionError, MemoryError
        ),
        (b"import a.b as c\nfrom .d import (e, f)\n# coding: latin-1\n",),
    ),
    "login": (
        _file("config.json", _login),
        ('{"auths": {"example.com": {"auth": "YTpi"}}, "credHelpers": {"x": "y"}}',),
    ),
    "pip": (
        _file("pip.conf", lambda folder: make_uv_environ({"PIP_CONFIG_FILE": str(folder / "pip.conf")})),
        (_SETTINGS,),
    ),
    "settings": (_text(lambda text: from_environment({"HOME": "/x", "IMGTOOL_MIRRORS": text})), ("a=b,c=d:5000/e",)),
    "elf": (
        lambda data, _: read_library(lambda at, size: data[at : at + size]),
        tuple(path.read_bytes()[:40_000] for path in sorted(Path(sys.prefix).rglob("*.so"))[:2]),
    ),
    "loader-cache": (lambda data, _: read_cache(data), tuple(map(Path.read_bytes, Path("/etc").glob("ld.so.cache")))),
    "deb": (_file("a.deb", _deb), ()),
    "stanzas": (
        _text(lambda text: list(parse_stanzas(text))),
        ("Package: a\nDepends: b (>= 1), c | d\nDescription: e\n f\n .\n\n",),
    ),
    "alternatives": (_text(lambda text: parse_group(text, "a", "/b")), ("auto\n/usr/bin/a\nb\n/c\n\n/d\n10\n/e\n\n",)),
    "certificate": (
        _allow(lambda data, _: hash_subject(data), ValueError, IndexError, KeyError),
        (b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",),
    ),
    "notebook": (
        _project("a.ipynb"),
        ('{"cells": [{"cell_type": "code", "source": ["import tensorflow\\n", "%pip x"]}]}',),
    ),
    "conda": (_project("environment.yml"), ("dependencies:\n- python=3.9\n- pip:\n  - tensorflow==2.9\n",)),
    "pipfile": (_project("Pipfile"), ('[packages]\ntensorflow = "==2.9"\n[requires]\npython_version = "3.9"\n',)),
    "poetry": (
        _project("pyproject.toml"),
        ('[tool.poetry.dependencies]\npython = "^3.9"\ntensorflow = {version = "~2.9"}\n',),
    ),
    "uv-lock": (_project("uv.lock"), ('[[package]]\nname = "a"\nversion = "1"\nsource = { registry = "x" }\n',)),
    "setup": (_project("setup.py"), ("from setuptools import setup\nX = ['a']\nsetup(install_requires=X + ['b'])\n",)),
    "setup-cfg": (_project("setup.cfg"), ("[options]\ninstall_requires =\n  a>1\n",)),
    "dockerfile": (_project("Dockerfile"), (_DOCKERFILE,)),
    "readme": (_project("README.md"), ("```\npip install a==1\npython train.py --x 1\n```\n",)),
    "program": (_project("train.py"), ("import tensorflow as tf\nif __name__ == '__main__':\n  tf.estimator.x()\n",)),
}


@dataclass(frozen=True)
class Alarm:
    """Ends what takes too long, with the place where it was."""

    seconds: float

    def __enter__(self) -> None:
        def ring(*_: object) -> None:
            raise TimeoutError(f"over {self.seconds} s")

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _mutate(data: Any, seeds: list[bytes]) -> bytes:
    """Draws a damaged sample: parts that go, come twice or often, and come from elsewhere."""
    made = data.draw(strategies.sampled_from(seeds))
    for _ in range(data.draw(strategies.integers(0, 5))):
        at = data.draw(strategies.integers(0, len(made)))
        gone = data.draw(strategies.sampled_from((0, 0, 1, 2, 4, 8, 64, 512, 1 << 20)))
        new = data.draw(
            strategies.sampled_from(_WORDS)
            | strategies.binary(max_size=8)
            | strategies.just(made[at : at + data.draw(strategies.sampled_from((1, 4, 16, 64, 512)))])
        )
        times = data.draw(strategies.sampled_from((1, 1, 1, 1, 2, 30, 3000)))
        made = (made[:at] + new * times + made[at + gone :])[: 1 << 18]
    return bytes(made)


def fuzz(read: Read, seeds: list[bytes], seconds: float, folder: Path, first: int) -> int:
    """Gives a reader examples for so long; returns their number. The first that is not refused in words is shown."""
    tried, end = 0, time.monotonic() + seconds

    def run(data: Any) -> None:
        nonlocal tried
        example = _mutate(data, seeds)
        if tried and time.monotonic() > end:
            return
        tried += 1
        with Alarm(SLOWEST), suppress(ImgtoolError, PageError, PassingError, DebianError):
            read(example, folder)

    settings = hypothesis.settings(
        max_examples=100 if seconds > 1 else 10,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    while time.monotonic() < end:
        hypothesis.seed(first + tried)(settings(hypothesis.given(strategies.data())(run)))()
    return tried


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(0.02, id="moment"),
        pytest.param(5, id="seconds", marks=pytest.mark.long),
        pytest.param(300, id="minutes", marks=pytest.mark.campaign),
    ],
)
@pytest.mark.parametrize("name", READERS)
def test_damaged_samples_are_errors_with_words(name: str, seconds: float, tmp_path: Path) -> None:
    read, samples = READERS[name]
    if name == "deb":
        samples = tuple(
            make_package(tmp_path / kind, "a", {"/a": "b", "/l": "-> a"}, compression=kind)[1].read_bytes()
            for kind in ("xz", "gzip", "none")
        )
    if not samples:
        pytest.skip("this machine has no sample")
    seeds = [sample.encode() if isinstance(sample, str) else sample for sample in samples]
    tried = fuzz(read, seeds, seconds, tmp_path, 0 if seconds < 1 else random.randrange(1 << 30))
    assert tried
    print(f"{name}: {tried} examples")
