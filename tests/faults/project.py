"""A user's project with everything in it that may be harmed, and `imgtool` run in it as a user would.

The folder has a small spec, a trainer, a lock of two tiny wheels, and a config.yaml that must survive. The home has
a login, the environment a password for an index: both contain CANARY, which may appear nowhere else.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import forked_imgtool, plans
from tests.faults.base import base_image
from tests.oci.direct.wheels import as_wheel, make_init, make_wheel
from tests.outputs import check_output
from training_imgtool.model.load import load
from training_imgtool.model.lock import Lock, LockedVariant
from training_imgtool.resolve.lock.lockfile import dump_lock, lock_inputs
from training_imgtool.resolve.versions.matrix import load_matrix
from training_imgtool.resolve.versions.resolve import resolve

IMGTOOL = Path(sys.executable).parent / "imgtool"
CANARY = "canary-5f1d0c9e7a"
_SECRETS = (CANARY.encode(), base64.b64encode(f"robot:{CANARY}".encode()))
OLD_CONFIG = "# written by hand\nold: true\n"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")  # root ignores permissions
NO_ENGINE = "unix:///nonexistent/docker.sock"
SPEC = """\
name: demo
tensorflow: "2.15.1"
python: "3.11"
trainer: {source: trainer, module: trainer.task}
roles:
  master: {machine: n1-standard-4}
  worker: {machine: n1-standard-4}
job:
  target: ai-platform
  region: us-central1
"""
_TEMPORARY = re.compile(
    r"\.imgtool-[0-9a-f]{16}\.tmp|\..*\.imgtool-lock"
)  # what training_imgtool.base.atomic_files makes meanwhile
_PIP_SCRIPT = "script_template = '''import sys\nfrom %(module)s import %(import_name)s\nsys.exit(%(func)s())\n'''\n"


_TENSORFLOW = {"tensorflow/__init__.py": b"__version__ = '2.15.1'\n"}


@dataclass(frozen=True)
class Ended:
    """What came of one `imgtool`."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as the one JSON document that it must be."""
        return json.loads(self.out)


class Project:
    """See the module. `env` is the whole environment of the commands, and may be changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder, self.home, self.cache, self.tmp = (root / name for name in ("project", "home", "cache", "tmp"))
        for folder in (self.folder, self.home, self.cache, self.tmp):
            folder.mkdir()
        self.mark = uuid.uuid4().hex
        self.env = {
            "PATH": f"{IMGTOOL.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "IMGTOOL_CACHE": str(self.cache),
            "DOCKER_HOST": NO_ENGINE,
            "UV_INDEX_URL": f"http://robot:{CANARY}@127.0.0.1:9/simple",
            "NO_GCE_CHECK": "true",
            "FAULTS_MARK": self.mark,
        }
        self.write("trainer/__init__.py", "")
        self.write("trainer/task.py", 'print("training")\n')
        self.login("registry.example.com")
        self.config = self.write("config.yaml", OLD_CONFIG)
        self.kept = self.config.stat().st_mtime_ns
        self.spec(SPEC)

    def write(self, name: str, content: str | bytes) -> Path:
        """A file of the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def spec(self, text: str | bytes, *, lock: bool = True) -> Path:
        """Writes image.yaml, and the lock that belongs to it; without `lock` for what cannot be read."""
        path = self.write("image.yaml", text)
        if lock:
            self.lock()
        return path

    def lock(self, base: str = "") -> None:
        """Writes image.lock by hand, and its wheels into the cache: no index and no registry is asked."""
        spec_file = load(self.folder / "image.yaml")
        installer, *wheels = (as_wheel(self._cached(path)) for path in small_wheels())
        variants = tuple(
            LockedVariant(
                variant=variant,
                base_digest=base or base_image().digest,
                installer=installer,
                wheels=tuple(wheels),
                debian=plans.unresolved_packages(variant, spec_file.spec.system_packages),
            )
            for variant in resolve(spec_file.spec, load_matrix()).variants
        )
        made = Lock(inputs=lock_inputs(spec_file), platform=spec_file.spec.platform, variants=variants)
        self.write("image.lock", dump_lock(made))

    def _cached(self, path: Path) -> Path:
        digest = as_wheel(path).sha256
        place = self.cache / "wheels" / digest[:2] / digest / path.name
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
        return place

    def login(self, host: str) -> Path:
        """Leaves a login for `host` in Docker's config, its password the canary."""
        auth = base64.b64encode(f"robot:{CANARY}".encode()).decode()
        path = self.home / ".docker/config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"auths": {host: {"auth": auth}}}))
        path.chmod(0o600)
        return path

    def open_to_nobody(self) -> None:
        """Lets a command that runs `before=NOBODY` use this project; skips where that cannot be."""
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            pytest.skip("running as another user needs root and setpriv")
        for folder in (self.root, *self.root.parents):
            if folder.stat().st_mode & 0o001 == 0 and folder.is_relative_to(tempfile.gettempdir()):
                folder.chmod(folder.stat().st_mode | 0o001)
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)

    def start(
        self,
        *arguments: str | Path,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        before: Sequence[str] = (),
        bare: bool = False,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Begins a command; `env` adds to the project's, None takes away; `before` starts it, or with `bare` is all."""
        environ = self._environ(env)
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        words = [*before] if bare else [*before, str(IMGTOOL), *map(str, arguments)]
        return subprocess.Popen(words, env=environ, cwd=cwd or self.folder, **given)

    def _environ(self, env: Mapping[str, str | None] | None) -> dict[str, str]:
        return {name: value for name, value in {**self.env, **(env or {})}.items() if value is not None}

    def run(
        self,
        *arguments: str | Path,
        timeout: float = 60,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        **options: Any,
    ) -> Ended:
        """Runs a command to its end, and looks whether it left anything behind; see `start` for the options."""
        environ = self._environ(env)
        before = options.get("before", ())
        network = before[1].removeprefix("--net=") if before[:1] == ("nsenter",) and len(before) == 3 else ""
        others = {name for name, value in options.items() if value and not (name == "before" and network)}
        if others or not forked_imgtool.reads_late(environ):
            return self.ended(self.start(*arguments, env=env, cwd=cwd, **options), timeout)
        code, out, err = forked_imgtool.run(arguments, environ, cwd or self.folder, timeout, network)
        ended = Ended(code, out.decode(), err.decode())
        self.check(ended)
        check_output(arguments, ended.out)
        return ended

    def ended(self, process: subprocess.Popen[bytes], timeout: float = 60) -> Ended:
        """Waits for a command; see `run`."""
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
            raise AssertionError(f"imgtool did not end; stderr:\n{err.decode(errors='replace')}") from None
        ended = Ended(process.returncode, (out or b"").decode(), (err or b"").decode())
        self.check(ended)
        return ended

    def check(self, ended: Ended) -> None:
        """No traceback, no secret, no process, no temporary file."""
        assert "Traceback" not in ended.err, ended.err
        for secret in _SECRETS:
            assert secret.decode() not in ended.out + ended.err
        assert not self.running()
        left = [str(path) for path in self.tmp.rglob("*")]
        for folder in (self.folder, self.cache):
            left += [str(path) for path in folder.rglob("*") if _TEMPORARY.fullmatch(path.name)]
        assert left == []

    @staticmethod
    def kill(pid: int, signum: int) -> None:
        """Sends a signal to a command that may have ended."""
        with suppress(ProcessLookupError):
            os.kill(pid, signum)

    def running(self) -> list[str]:
        """The command lines of processes of this project that still run."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return found

    def leaks(self) -> list[Path]:
        """The files that contain a secret and should not."""
        planted = self.home / ".docker/config.json"
        files = (path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink() and path != planted)
        return [path for path in files if any(secret in path.read_bytes() for secret in _SECRETS)]

    def refused(
        self, *arguments: str | Path, code: int, says: Sequence[str] = (), hint: str | None = None, **options: Any
    ) -> Ended:
        """Runs a command that must fail, and checks the failure; see `failed`."""
        ended = self.run(*arguments, **options)
        self.failed(ended, *arguments, code=code, says=says, hint=hint)
        return ended

    def failed(
        self, ended: Ended, *arguments: str | Path, code: int, says: Sequence[str] = (), hint: str | None = None
    ) -> None:
        """Checks a failure: its code, its words, both streams, and that nothing was harmed.

        Args:
            ended: the command that failed.
            arguments: its arguments; with --json stdout must be the error as a document.
            code: the exit code.
            says: what the message must contain.
            hint: what the line that begins with `Try:` must contain.
        """
        assert ended.code == code, (ended.code, ended.err)
        lines = ended.err.splitlines()
        errors = [number for number, line in enumerate(lines) if line.startswith("Error: ")]
        assert len(errors) == 1, ended.err
        message = "\n".join(lines[errors[0] :])
        for words in says:
            assert words in message, (words, ended.err)
        tries = [line for line in lines if line.startswith("Try: ")]
        if hint is not None:
            assert any(hint in line for line in [*tries, *lines]), ended.err
        assert "\x1b" not in ended.err
        if "--json" in arguments:
            self._check_document(ended, message, tries)
        else:
            assert ended.out == ""
        assert self.config.read_text() == OLD_CONFIG
        assert self.config.stat().st_mtime_ns == self.kept
        assert not self.leaks()

    @staticmethod
    def _check_document(ended: Ended, message: str, tries: list[str]) -> None:
        document = ended.document
        assert set(document) == {"schema", "ok", "error"}
        assert document["ok"] is False
        error = document["error"]
        assert error["code"] == ended.code
        assert error["retryable"] is (ended.code in {5, 8})
        assert error["message"].splitlines()[0] in message
        if tries:
            assert tries == [f"Try: {error['hint']}"]

    def images(self, ended: Ended) -> dict[str, str]:
        """What `build` or `push` printed: a reference by role."""
        assert ended.code == 0, ended.err
        return {role: reference for role, _, reference in (line.partition(" ") for line in ended.out.splitlines())}

    @contextmanager
    def under_way(self, *arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A command that is killed at the end, should it still run."""
        process = self.start(*arguments, start_new_session=True, **options)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


@cache
def small_wheels() -> tuple[Path, ...]:
    """pip's wheel, as far as imgtool reads it, and two small packages."""
    folder = Path(tempfile.mkdtemp(prefix="imgtool-faults-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pip = {"pip/__init__.py": b"", "pip/_internal/operations/install/wheel.py": _PIP_SCRIPT.encode()}
    return (
        make_wheel(folder, "pip", pip, version="24.3.1"),
        make_init(folder),
        make_wheel(folder, "numpy", {"numpy/__init__.py": b"# numbers\n"}, version="1.26.4"),
        make_wheel(folder, "tensorflow_cpu", _TENSORFLOW, version="2.15.1", requires=("numpy",)),
    )
