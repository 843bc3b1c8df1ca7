"""Docker's credential helpers: programs that keep logins. imgtool runs only the helper of the registry that it needs.

Protocol: docker/docker-credential-helpers, `get` with the server on stdin and JSON on stdout.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping

from training_imgtool.core.errors import CredentialsError
from training_imgtool.core.reference import Login
from training_imgtool.core.sanitize import mask_secrets
from training_imgtool.registry.auth.docker_config import server_name

HELPER_SECONDS = 10.0
_LARGEST_ANSWER = 65536
_NOT_FOUND = ("credentials not found", "no credentials found", "not found in native keychain")


def run_helper(name: str, host: str, environ: Mapping[str, str], *, seconds: float = HELPER_SECONDS) -> Login | None:
    """Asks `docker-credential-NAME` for a host's login; None when it has none.

    Raises:
        CredentialsError: the helper is missing, fails, hangs, or answers with something else.
    """
    program = f"docker-credential-{name}"
    path = shutil.which(program, path=environ.get("PATH", os.defpath))
    if path is None:
        raise CredentialsError(
            f"{program}, which Docker's config names for {host}, is not on PATH",
            hint=f"install it, or remove {name!r} from Docker's config.json",
        )
    code, out, err = _talk(program, path, server_name(host), environ, seconds)
    text = out.decode("utf-8", "replace").strip()
    if code != 0:
        said = text or err.decode("utf-8", "replace")
        if any(words in said.lower() for words in _NOT_FOUND):
            return None
        raise CredentialsError(
            f"{program} failed for {host} (exit code {code}); it says: {mask_secrets(said) or 'nothing'}"
        )
    if not text:
        return None
    try:
        answer = json.loads(text)
        user, secret = answer.get("Username", ""), answer.get("Secret", "")
    except (ValueError, AttributeError, RecursionError):
        raise CredentialsError(f"{program} answered for {host} with something that is not its JSON") from None
    if not isinstance(user, str) or not isinstance(secret, str):
        raise CredentialsError(f"{program} answered for {host} without a user name and secret")
    return Login(username=user, password=secret) if user and secret else None


def _talk(program: str, path: str, server: str, environ: Mapping[str, str], seconds: float) -> tuple[int, bytes, bytes]:
    """Runs a helper in a process group of its own, so that a hanging one goes with all it started."""
    try:
        process = subprocess.Popen(
            [path, "get"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,
        )
    except OSError as error:
        raise CredentialsError(f"{program} cannot be run: {error.strerror}") from error
    try:
        return _collect(program, process, server.encode(), time.monotonic() + seconds, seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None and not stream.closed:
                stream.close()


def _collect(
    program: str, process: subprocess.Popen[bytes], question: bytes, stop: float, seconds: float
) -> tuple[int, bytes, bytes]:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101,PT018 for mypy: all are pipes
    try:
        process.stdin.write(question)
        process.stdin.close()
    except BrokenPipeError:
        pass  # the helper reads no input; its exit code says the rest
    output = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in output:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = stop - time.monotonic()
            if left <= 0:
                raise CredentialsError(f"{program} did not answer within {seconds:.0f} s")
            for key, _ in selector.select(left):
                stream = process.stdout if key.fileobj is process.stdout else process.stderr
                block = os.read(stream.fileno(), 65536)
                output[stream] += block
                if not block:
                    selector.unregister(stream)
                if len(output[stream]) > _LARGEST_ANSWER:
                    raise CredentialsError(f"{program} answered with more than {_LARGEST_ANSWER} bytes")
    try:
        code = process.wait(max(0.1, stop - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise CredentialsError(f"{program} did not end within {seconds:.0f} s") from None
    return code, bytes(output[process.stdout]), bytes(output[process.stderr])
