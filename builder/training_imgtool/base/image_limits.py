"""The names, numbers and dates that every engine and runtime can have in an image."""

from __future__ import annotations

import posixpath

_LONGEST_NAME = 255  # bytes: Linux, NAME_MAX
_LONGEST_PATH = 4095 - 256  # bytes: Linux, PATH_MAX, less the folder into which an engine unpacks a layer
MOST_ID = (1 << 31) - 1  # moby, pkg/user
MOST_SECONDS = (1 << 33) - 1  # 11 octal digits of a tar header; archive/tar of Go refuses more in such a header
_HIDDEN = (  # a folder mounted at or above one of these leaves no program, no library or no engine's file
    *("/app", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt/venv", "/proc", "/run", "/sbin", "/sys", "/usr"),
    *("/usr/bin", "/usr/lib", "/usr/lib64", "/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/sbin", "/var"),
)
_CLOSED = ("/opt/venv", "/proc", "/sys")  # nor below one of these


def find_path_fault(path: str) -> str | None:
    """Returns why an image cannot have a file or folder with this path; None if it can."""
    data = path.encode("utf-8", "surrogateescape")
    if ".wh." in path and any(name.startswith(".wh.") for name in path.split("/")):
        return "in an image, a file with such a name deletes another file"
    if len(data) > _LONGEST_NAME and max(map(len, data.split(b"/"))) > _LONGEST_NAME:
        return f"a name of over {_LONGEST_NAME} bytes, which no Linux file system takes"
    if len(data) > _LONGEST_PATH:
        return f"a path of over {_LONGEST_PATH} bytes, which engines cannot unpack"
    return None


def find_user_fault(user: str) -> str | None:
    """Returns why engines start no container as `USER[:GROUP]`; None if none of the two numbers is too large."""
    for text in user.split(":"):
        if text.isdecimal() and int(text) > MOST_ID:
            return f"{text} is over {MOST_ID}, the highest number that engines take"
    return None


def find_mount_fault(path: str) -> str | None:
    """Returns why no folder may be mounted at an absolute path in the containers; None if it may."""
    if path.startswith("//") or posixpath.normpath(path) != (path.rstrip("/") or "/"):
        return "a path with `.`, `..` or an empty part"
    inside = f"{path.rstrip('/')}/"
    hidden = next((own for own in _HIDDEN if f"{own}/".startswith(inside)), None)
    hidden = hidden or next((own for own in _CLOSED if inside.startswith(f"{own}/")), None)
    return f"the folder would hide {hidden} of the image" if hidden else find_path_fault(path)
