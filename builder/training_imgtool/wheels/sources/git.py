"""Git repositories: what a branch or a tag names, and the files of a commit. Runs the machine's `git`.

The files come from Git's objects and not from a checkout, so that no filter, hook or line-end setting of the machine
changes them. Logins are Git's own: credential helpers, netrc and SSH agents.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.core.errors import CredentialsError, ImgtoolError, InputError, LocalFileError, TemporaryError
from training_imgtool.core.sanitize import sanitize_line

if TYPE_CHECKING:
    from training_imgtool.wheels.sources.pack import TreeWriter

_SECONDS = 600
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # how the text that stands for a file of Git LFS begins
_LINK, _MODULE, _EXECUTABLE = "120000", "160000", "100755"
_REFUSED = re.compile(r"(?i)Authentication failed|could not read Username|Permission denied|\b40[13]\b|access denied")
_MISSING = re.compile(r"(?i)not found|does not exist|does not appear to be a git repository|couldn't find remote ref")
_LOGIN = re.compile(r"://[^/\s@]+@")


class Git:
    """The `git` of this machine.

    Args:
        environ: the machine's environment.
        ca_file: a PEM file to trust, or None.
    """

    def __init__(self, environ: Mapping[str, str], *, ca_file: Path | None = None) -> None:
        self._environ = {
            **environ,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "LC_ALL": "C",
            "GIT_SSH_COMMAND": environ.get("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
        }
        self._environ.pop("GIT_DIR", None)
        self._environ.pop("GIT_WORK_TREE", None)
        if ca_file:
            self._environ["GIT_SSL_CAINFO"] = str(ca_file)

    def resolve(self, url: str, revision: str) -> str:
        """Returns the commit that a branch, a tag or a full commit names; empty text names the default branch.

        Raises InputError for a name that the repository does not have, CredentialsError, TemporaryError.
        """
        if _COMMIT.fullmatch(revision):
            return revision
        name_or_head = revision or "HEAD"
        output = self._run("ls-remote", "--", url, name_or_head, f"{name_or_head}^{{}}").decode(errors="replace")
        rows = (line.partition("\t") for line in output.splitlines())
        commits = {name: commit for commit, _, name in rows}
        for name in ("refs/tags/{}^{{}}", "refs/tags/{}", "refs/heads/{}", "{}"):
            commit = commits.get(name.format(name_or_head))
            if commit and _COMMIT.fullmatch(commit):
                return commit
        raise InputError(
            f"{_hide_credentials(url)} has no branch and no tag {name_or_head}",
            hint="write a full commit, a branch or a tag after the @",
        )

    def read(self, url: str, commit: str, subdirectory: str, writer: TreeWriter) -> None:
        """Gives `writer` the files of a commit, or of one folder of it.

        Raises InputError for a commit or folder that the repository lacks, CredentialsError, TemporaryError.
        """
        with tempfile.TemporaryDirectory(prefix="imgtool-git-") as folder:
            self._run("init", "--quiet", "--bare", folder)
            self._fetch(folder, url, commit)
            tree = f"{commit}:{subdirectory}" if subdirectory else f"{commit}^{{tree}}"
            try:
                listing = self._run("-C", folder, "ls-tree", "-r", "-z", tree)
            except InputError as error:
                raise InputError(f"{_hide_credentials(url)} has no folder {subdirectory} in {commit[:12]}") from error
            for mode, name, content in self._read_contents(folder, listing):
                if content.startswith(_LFS_POINTER):
                    raise InputError(
                        f"{name} is kept by Git LFS, which imgtool does not read",
                        hint="check the repository out with `git lfs pull`, and require that folder, such as ./libs/x",
                    )
                if mode == _LINK:
                    writer.link(name, content.decode())
                else:
                    writer.add(name, content, executable=mode == _EXECUTABLE)

    def _fetch(self, folder: str, url: str, commit: str) -> None:
        """Fetches one commit; a server that gives no commit by its name gives all branches and tags."""
        try:
            self._run("-C", folder, "fetch", "--quiet", "--depth=1", "--no-tags", "--", url, commit)
        except ImgtoolError:
            self._run(
                "-C", folder, "fetch", "--quiet", "--", url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"
            )
        try:
            self._run("-C", folder, "cat-file", "-e", f"{commit}^{{commit}}")
        except InputError as error:
            hint = "push the commit, or name another one"
            raise InputError(f"{_hide_credentials(url)} has no commit {commit}", hint=hint) from error

    def _read_contents(self, folder: str, listing: bytes) -> Iterator[tuple[str, str, bytes]]:
        """Reads mode, path and content of each file, in Git's order."""
        rows = []
        for row in filter(None, listing.split(b"\0")):
            head, _, name = row.partition(b"\t")
            mode, _, sha = head.decode().split(" ")
            if mode == _MODULE:
                shown = name.decode(errors="replace")
                raise InputError(f"{shown} is a submodule", hint="require that repository on a line of its own")
            rows.append((mode, name.decode(errors="surrogateescape"), sha))
        output = self._run(
            "-C", folder, "cat-file", "--batch", stdin="".join(f"{sha}\n" for _, _, sha in rows).encode()
        )
        at = 0
        for mode, path, _ in rows:
            end = output.index(b"\n", at)
            size = int(output[at:end].rsplit(b" ", 1)[1])
            yield mode, path, output[end + 1 : end + 1 + size]
            at = end + size + 2

    def _run(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        command = ["git", "-c", "protocol.ext.allow=never", "-c", "gc.auto=0", *arguments]
        try:
            done = subprocess.run(
                command, input=stdin or b"", env=self._environ, capture_output=True, timeout=_SECONDS, check=False
            )
        except FileNotFoundError as error:
            raise LocalFileError(
                "git is not on this machine", hint="install git; a Git requirement needs it"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise TemporaryError(f"git did not finish within {_SECONDS} seconds") from error
        if done.returncode:
            raise _explain_failure(done.stderr.decode(errors="replace"))
        return done.stdout


def _explain_failure(stderr: str) -> ImgtoolError:
    lines = tuple(sanitize_line(_LOGIN.sub("://", line)) for line in stderr.splitlines() if line.strip())
    text = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "git failed")
    message = text.removeprefix("fatal: ").removeprefix("error: ")
    if _REFUSED.search(stderr):
        hint = "give Git the login: a credential helper, netrc or an SSH key"
        return CredentialsError(f"Git: {message}", hint=hint, details=lines)
    if _MISSING.search(stderr) or "://" not in stderr:
        return InputError(f"Git: {message}", details=lines)
    return TemporaryError(f"Git: {message}", hint="try again later", details=lines)


def _hide_credentials(url: str) -> str:
    return _LOGIN.sub("://", url)
