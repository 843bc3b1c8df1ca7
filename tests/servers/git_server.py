"""A Git repository on loopback, over smart HTTP (`git http-backend`) or as plain files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.running import running

_WHO = {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def run_git(folder: Path, *arguments: str) -> str:
    """Runs git in a folder with settings of its own; returns what it prints."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **_WHO}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, files: Mapping[str, str], message: str = "change") -> str:
    """Writes files into a repository, made where there is none, and commits them; returns the commit."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        run_git(folder, "init", "--quiet", "--initial-branch=main")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    run_git(folder, "update-server-info")
    return run_git(folder, "rev-parse", "HEAD")


@contextmanager
def serving_git(root: Path, *, smart: bool = True) -> Iterator[str]:
    """Serves the repositories below `root`; yields the URL that stands for `root`. Other paths than them are 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

        def _answer(self, body: bytes) -> None:
            url = urlsplit(self.path)
            if smart:
                head, content = _backend(root, url.path, url.query, self, body)
            else:
                file = root / url.path.lstrip("/")
                head, content = ({}, file.read_bytes()) if file.is_file() else ({"Status": "404"}, b"")
            self.send_response(int(head.pop("Status", "200").split()[0]))
            for name, value in head.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as host:
        yield f"http://{host}"


def _backend(
    root: Path, path: str, query: str, handler: BaseHTTPRequestHandler, body: bytes
) -> tuple[dict[str, str], bytes]:
    """The answer of git's own CGI program."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""),
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "REQUEST_METHOD": handler.command,
        "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""),
        "REMOTE_ADDR": "127.0.0.1",
    }
    done = subprocess.run(["git", "http-backend"], input=body, env=environ, capture_output=True, check=False)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    rows = (line.partition(": ") for line in head.decode().splitlines())
    return {name: value for name, _, value in rows if name}, content
