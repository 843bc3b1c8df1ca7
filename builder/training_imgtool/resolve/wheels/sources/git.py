"""Finds commits in Git repositories and checks them out, with the machine's `git`.

Git itself finds logins: in credential helpers, netrc and SSH agents.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from training_imgtool.base.errors import CredentialsError, ImgtoolError, InputError, LocalFileError, TemporaryError
from training_imgtool.base.sanitize import sanitize_line

_SECONDS = 600
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # the start of a pointer file of Git LFS
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REFUSED = re.compile(r"(?i)Authentication failed|could not read Username|Permission denied|\b40[13]\b|access denied")
_MISSING = re.compile(r"(?i)not found|does not exist|does not appear to be a git repository|couldn't find remote ref")
_LOGIN = re.compile(r"://[^/\s@]+@")


class Git:
    """The `git` of this machine.

    Args:
        environ: the machine's environment.
        ca_file: a PEM file of certificates to trust, or None.
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
        """Returns the commit that a branch, a tag or a full hash names; an empty revision means the default branch.

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

    def check_out(self, url: str, commit: str, folder: Path) -> None:
        """Clones a repository with its tags and submodules into `folder`, and checks out a commit.

        Raises InputError if the repository lacks the commit, or if it has a file in Git LFS and git-lfs is not
        installed; CredentialsError, TemporaryError.
        """
        self._run("clone", "--quiet", "--no-checkout", "--", url, str(folder))
        try:
            self._run("-C", str(folder), "checkout", "--quiet", "--detach", commit)
        except InputError as error:
            hint = "push the commit, or name another one"
            raise InputError(f"{_hide_credentials(url)} has no commit {commit}", hint=hint) from error
        self._run("-C", str(folder), "submodule", "--quiet", "update", "--init", "--recursive")
        _refuse_pointers(folder, url)

    def _run(self, *arguments: str) -> bytes:
        command = ["git", "-c", "protocol.ext.allow=never", "-c", "gc.auto=0", *arguments]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, env=self._environ, capture_output=True, timeout=_SECONDS, check=False
            )
        except FileNotFoundError as error:
            raise LocalFileError("git is not installed", hint="install git, which a Git requirement needs") from error
        except subprocess.TimeoutExpired as error:
            raise TemporaryError(f"git did not finish within {_SECONDS} seconds") from error
        if done.returncode:
            raise _explain_failure(done.stderr.decode(errors="replace"))
        return done.stdout


def _refuse_pointers(folder: Path, url: str) -> None:
    """Raises InputError for the first file that is a pointer of Git LFS."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                name = path.relative_to(folder)
                raise InputError(
                    f"{_hide_credentials(url)}: {name} is stored in Git LFS, and git-lfs is not installed",
                    hint="install git-lfs and run `git lfs install`, or require a folder that contains the files",
                )


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
