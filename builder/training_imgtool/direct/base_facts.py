"""Where the bases of the version matrix have what, as data: Debian's and Ubuntu's layout, and what is not in it.

A build on one of these images needs no listing of it unless it writes into a folder that is closed here. The facts are
those of base-files (Debian 10 to 13, Ubuntu 18.04 to 24.04), of Docker's `python` and of NVIDIA's `cuda` images;
`tests/integration/test_base_files.py` compares them with every such image that is within reach.
"""

from __future__ import annotations

import re

from training_imgtool.core.reference import DOCKER_HUB
from training_imgtool.direct.tree import FILE, UNKNOWN, Attributes, Node, make_folder

_IMAGES = re.compile(
    rf"{re.escape(DOCKER_HUB)}/"
    r"(?:library/(?:python:[\d.]+-slim-[a-z]+|debian:[\w.-]+|ubuntu:[\w.-]+)|nvidia/cuda:[\w.-]+-ubuntu[\d.]+)\Z"
)
_LISTED_NOWHERE = "boot home media mnt usr var"  # folders of root with mode 755
_FOLDERS_OR_LINKS = "bin dev lib lib32 lib64 libx32 proc run sbin sys"
_NVIDIA = "NGC-DL-CONTAINER-LICENSE cuda-keyring_1.0-1_all.deb cuda-keyring_1.1-1_all.deb"


def find_matrix_tree(base: str) -> Node | None:
    """Returns the known file tree of a base (REPOSITORY:TAG) of the version matrix, or None for another base."""
    if not _IMAGES.match(base):
        return None
    cuda = "/nvidia/" in base
    children = {name: make_folder(closed=True) for name in _LISTED_NOWHERE.split()}
    children |= dict.fromkeys(f"{_FOLDERS_OR_LINKS} {_NVIDIA if cuda else ''}".split(), UNKNOWN)
    children["etc"] = make_folder(closed=True, children={"passwd": FILE, "group": FILE})
    children["opt"] = make_folder(children={"nvidia": UNKNOWN} if cuda else None)
    children["root"] = make_folder(Attributes(0o700), closed=True)
    children["srv"] = make_folder()
    children["tmp"] = make_folder(Attributes(0o1777), closed=True)
    return make_folder(children=children)
