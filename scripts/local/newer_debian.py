"""Programs of another Debian release, unpacked below .services and not installed; unstable's unless told otherwise.

apt fetches them with lists of its own, from the mirror that this machine's own sources name, and checks its signatures.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from local import machine
from local.machine import UnavailableError, say

_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def unpack(name: str, packages: tuple[str, ...], *, dependencies: bool = False, release: str = "sid") -> Path:
    """Unpacks packages into .services/NAME/root once, and returns that folder; `control` beside it describes them.

    Args:
        name: of the folder.
        packages: Debian's names.
        dependencies: unpack all that they depend on too, down to the C library; else they use this machine's libraries.
        release: the release that the packages are taken from.

    Raises UnavailableError where apt cannot fetch them.
    """
    folder = machine.STATE / name
    root = folder / "root"
    if (folder / "ready").exists():
        return root
    apt = _apt(folder, packages, release)
    if dependencies:
        _run(*apt, "install", "-qq", "-y", "--no-install-recommends", "--download-only", *packages)
    else:
        _run(*apt, "download", "-qq", *packages, cwd=folder / "archives")
    for package in sorted((folder / "archives").glob("*.deb")):
        _run("dpkg-deb", "-x", str(package), str(root))
        (folder / "control" / package.name.partition("_")[0]).write_text(_run("dpkg-deb", "-f", str(package)))
        package.unlink()
    shutil.rmtree(folder / "lists")
    (folder / "ready").touch()
    return root


def source(name: str, package: str, *, release: str) -> Path:
    """Fetches the source of a package once and returns its folder, without Debian's own changes.

    Raises UnavailableError where apt cannot fetch it.
    """
    folder = machine.STATE / name / "source"
    if not (folder / "ready").exists():
        apt = _apt(folder, (package,), release, kind="deb-src")
        _run(*apt, "source", "-qq", "--download-only", package, cwd=folder)
        _run("tar", "--extract", "--file", str(next(folder.glob("*.orig.tar.*"))), "--directory", str(folder / "root"))
        (folder / "ready").touch()
    return next((folder / "root").iterdir())


def _apt(folder: Path, packages: tuple[str, ...], release: str, *, kind: str = "deb") -> tuple[str, ...]:
    """The command `apt-get` with new lists, packages and a record of installed ones (none) of its own."""
    if os.geteuid() != 0 or not machine.program("apt-get") or not _KEYS.exists():
        raise UnavailableError("this needs root on Debian, and the package debian-archive-keyring")
    say(f"fetching {', '.join(packages)} of Debian {release}")
    for part in ("lists/partial", "archives/partial", "control", "root"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"{kind} [signed-by={_KEYS}] {_mirror()} {release} main\n")
    options = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::State::Status": folder / "status",
        "Dir::Cache": folder,
        "Dir::Cache::Archives": folder / "archives",
        "APT::Sandbox::User": "root",
    }
    command = ("apt-get", *(word for key, value in options.items() for word in ("-o", f"{key}={value}")))
    _run(*command, "update", "-qq")
    return command


def _mirror() -> str:
    """The address of Debian's main archive in this machine's own sources."""
    command = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    addresses = _run(*command).split()
    mirror = next((address for address in addresses if address.rstrip("/").endswith("/debian")), None)
    if mirror is None:
        raise UnavailableError("this machine's apt sources name no Debian archive")
    return mirror


def _run(*command: str, cwd: Path | None = None) -> str:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise UnavailableError(f"{command[0]} {command[-1]}: {last[0]}")
    return done.stdout
