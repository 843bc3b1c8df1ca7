"""Ways to tamper with an image, and sound images that look like it: layers on top of a good one, changes of its config.

A tampered image has a mismatch of the check that the table names; what it says is the second part of a row.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
import tarfile
from collections.abc import Callable, Mapping
from typing import Any

from tests.verify import images
from tests.verify.images import FOLDER, Change, Link, Raw

SITE = "opt/venv/lib/python3.11/site-packages"
APP = "app/trainer"
Files = Mapping[str, bytes | Link | Raw | None]
_KEY = b"-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----\n"
_SIX = f"{SITE}/six/__pycache__/__init__.cpython-311"


def compiled(source: bytes, *, level: int = 0, flags: int = 1) -> bytes:
    """Bytecode as `compileall` writes it; only Python 3.11 makes that of the images."""
    code = compile(source, f"/{SITE}/six/__init__.py", "exec", dont_inherit=True, optimize=level)
    return importlib.util.MAGIC_NUMBER + bytes([flags, 0, 0, 0]) + importlib.util.source_hash(b"") + marshal.dumps(code)


def _settings(**values: Any) -> Change:
    return lambda config: config["config"].update(values)


def _config(**values: Any) -> Change:
    return lambda config: config.update(values)


def change_env(edit: Callable[[list[str]], list[str]]) -> Change:
    """Changes the list of environment variables."""
    return lambda config: config["config"].update(Env=edit(config["config"]["Env"]))


def _move_arguments(config: dict[str, Any]) -> None:
    program, *arguments = config["config"]["Entrypoint"]
    config["config"].update(Entrypoint=[program], Cmd=arguments)


def _change_label(name: str) -> Change:
    return lambda config: config["config"]["Labels"].update({name: "0" * 40})


def _diff_id(number: int) -> Change:
    def change(config: dict[str, Any]) -> None:
        config["rootfs"]["diff_ids"][number] = "sha256:" + "0" * 64

    return change


def _history(text: str) -> Change:
    def change(config: dict[str, Any]) -> None:
        config["history"] = [{"created_by": text}] * 3

    return change


def raw_header(
    name: str, *, kind: str = "0", prefix: str = "", gnu: bool = False, data: bytes = b"", size: bytes = b""
) -> bytes:
    """An entry as no library writes it: with another type, or with GNU's magic number and a prefix."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    block = bytearray(member.tobuf(tarfile.USTAR_FORMAT)[:512])
    block[156:157] = kind.encode()
    block[124 : 124 + len(size)] = size
    block[345 : 345 + len(prefix)] = prefix.encode()
    if gnu:
        block[257:265] = b"ustar  \0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data + bytes(-len(data) % 512)


def raw_archive(*headers: bytes) -> bytes:
    """An archive of such entries."""
    return b"".join(headers) + bytes(1024)


def _pax(name: str) -> bytes:
    return f"{len(name) + 10} path={name}\n".encode()  # of 90 to 989 characters


CODE: dict[str, tuple[Files, str]] = {
    "other-code": ({f"{APP}/task.py": b"import numpy\n"}, f"/{APP}/task.py differs from the context"),
    "other-module": ({f"{APP}/model.py": b"layers = 3\n"}, f"/{APP}/model.py differs from the context"),
    "extra-module": ({f"{APP}/evil.py": b""}, f"/{APP}/evil.py is not in the context"),
    "beside": ({"app/numpy.py": b""}, "/app/numpy.py is not in the context"),
    "hard-link": (
        {"tmp/other.py": b"import numpy\n", f"{APP}/task.py": Link("tmp/other.py", hard=True)},
        f"/{APP}/task.py differs from the context",
    ),
    "symlink": ({"tmp/o.py": b"", f"{APP}/task.py": Link("/tmp/o.py")}, f"/{APP}/task.py is a link to /tmp/o.py"),
    "library": ({f"{APP}/model.so": b"\x7fELF"}, f"/{APP}/model.so is not in the context"),
    "bytecode": ({f"{APP}/__pycache__/task.cpython-311.pyc": b"x"}, "task.cpython-311.pyc is not in the context"),
    "old-bytecode": ({f"{APP}/evil.pyc": b"x"}, f"/{APP}/evil.pyc is not in the context"),
    "package-over-module": ({f"{APP}/model/__init__.py": b""}, f"/{APP}/model/__init__.py is not in the context"),
    "zip": ({"app/trainer.zip": b"PK\x05\x06"}, "/app/trainer.zip is not in the context"),
    "start": ({"app/sitecustomize.py": b""}, "/app/sitecustomize.py is not in the context"),
    "empty-folder": ({"app/data": FOLDER}, "/app/data is not in the context"),
    "settings": ({"app/.keras/keras.json": b"{}"}, "/app/.keras/keras.json is not in the context"),
    "gone": ({f"{APP}/model.py": None}, f"/{APP}/model.py is missing"),
    "opaque-app": ({"app/.wh..wh..opq": b""}, f"/{APP}/__init__.py is missing"),
    "app-link": ({"app": Link("/nonexistent")}, f"/{APP}/task.py is missing"),
    "whiteout-below": ({f"{APP}/task.py/x": None}, f"/{APP}/task.py differs from the context"),
}
VENV: dict[str, tuple[Files, str]] = {
    "tensorflow-code": (
        {f"{SITE}/tensorflow/__init__.py": images.TENSORFLOW.encode() + b"evil = 1\n"},
        f"/{SITE}/tensorflow/__init__.py differs from its wheel",
    ),
    "file-gone": ({f"{SITE}/six/__init__.py": None}, f"/{SITE}/six/__init__.py is missing"),
    "package-gone": ({f"{SITE}/six": None}, f"/{SITE}/six/__init__.py is missing"),
    "pth": ({f"{SITE}/evil.pth": b"import evil\n"}, f"/{SITE}/evil.pth belongs to no wheel"),
    "sitecustomize": ({f"{SITE}/sitecustomize.py": b""}, f"/{SITE}/sitecustomize.py belongs to no wheel"),
    "interpreter-file": (
        {"opt/venv/bin/python": b"#!/bin/sh\nexec /usr/local/bin/python3.11 -c evil\n"},
        "/opt/venv/bin/python differs from its wheel",
    ),
    "interpreter-name": (
        {"opt/venv/bin/python3.11": Link("/srv/python3.11")},
        "/opt/venv/bin/python3.11 belongs to no wheel",
    ),
    "system-packages": (
        {"opt/venv/pyvenv.cfg": b"home = /usr/local/bin\ninclude-system-site-packages = true\nversion = 3.11\n"},
        "/opt/venv/pyvenv.cfg differs from its wheel",
    ),
    "lib64": ({"opt/venv/lib64": Link("/srv/lib")}, "/opt/venv/lib64 belongs to no wheel"),
    "extra-script": ({"opt/venv/bin/evil": b"#!/bin/sh\n"}, "/opt/venv/bin/evil belongs to no wheel"),
    "bytecode-alone": (
        {f"{SITE}/six/__pycache__/evil.cpython-311.pyc": b"x"},
        f"/{SITE}/six/__pycache__/evil.cpython-311.pyc belongs to no wheel",
    ),
    "no-source": ({f"{SITE}/six/evil.pyc": b"x"}, f"/{SITE}/six/evil.pyc belongs to no wheel"),
    "metadata-gone": ({f"{SITE}/six-1.16.0.dist-info": None}, "six-1.16.0.dist-info/METADATA is missing"),
    "extra-package": (
        images.package(SITE, "pandas", "2.2.0", {}),
        "pandas-2.2.0.dist-info/METADATA belongs to no wheel",
    ),
    "site-link": ({SITE: Link("/nonexistent")}, "numpy-1.26.4.dist-info/METADATA is missing"),
    "site-file": ({SITE: b""}, "numpy-1.26.4.dist-info/METADATA is missing"),
    "whiteout-below": ({f"{SITE}/six/__init__.py/x": None}, f"/{SITE}/six/__init__.py differs from its wheel"),
    "python3": ({"opt/venv/bin/python3": Link("/srv/python3")}, "/opt/venv/bin/python3 belongs to no wheel"),
    "activate": ({"opt/venv/bin/activate": b"true\n"}, "/opt/venv/bin/activate belongs to no wheel"),
    "paths": ({"opt/venv/bin/python._pth": b"/srv\n"}, "/opt/venv/bin/python._pth belongs to no wheel"),
    "customize": ({f"{SITE}/usercustomize.py": b""}, f"/{SITE}/usercustomize.py belongs to no wheel"),
    "library": ({f"{SITE}/numpy/core.so": b"\x7fELF"}, f"/{SITE}/numpy/core.so belongs to no wheel"),
    "shadow": ({f"{SITE}/json.py": b""}, f"/{SITE}/json.py belongs to no wheel"),
    "package-over-module": ({f"{SITE}/numpy/__init__.so": b""}, "/numpy/__init__.so belongs to no wheel"),
    "other-python": (
        {"opt/venv/lib/python3.12/site-packages/x.pth": b""},
        "/opt/venv/lib/python3.12/site-packages/x.pth belongs",
    ),
    "egg-link": ({f"{SITE}/numpy.egg-link": b"/srv\n"}, f"/{SITE}/numpy.egg-link belongs to no wheel"),
    "entry-points": (
        {f"{SITE}/six-1.16.0.dist-info/entry_points.txt": b"[tensorflow.keras]\nx = y:z\n"},
        "entry_points.txt belongs to no wheel",
    ),
    "bytecode-folder": ({f"{SITE}/six/__pycache__": Link("/srv")}, f"/{SITE}/six/__pycache__ "),
    "empty-package": ({f"{SITE}/evil": FOLDER}, f"/{SITE}/evil belongs to no wheel"),
    "site-whole": ({"opt/venv": None}, "/opt/venv/bin/python is missing"),
    "site-linked": ({"opt/venv": Link("/srv/venv")}, "/opt/venv is a link to /srv/venv"),
    "site-opaque": ({f"{SITE}/.wh..wh..opq": b""}, "numpy-1.26.4.dist-info/METADATA is missing"),
    "tensorflow-metadata": (
        {f"{SITE}/tensorflow_cpu-2.15.1.dist-info": None},
        "tensorflow_cpu-2.15.1.dist-info/METADATA is missing",
    ),
}
_CAN_COMPILE = sys.version_info[:2] == (3, 11)
BYTECODE: dict[str, tuple[Files, str]] = {
    "other-code": ({f"{_SIX}.pyc": compiled(b"evil = 1\n")}, "-311.pyc is not what this machine makes"),
    "checked-by-time": ({f"{_SIX}.pyc": compiled(b"evil = 1\n", flags=0)}, "is not what this machine"),
    "other-constant": ({f"{_SIX}.pyc": compiled(b"0\n1\nx = 1.0\n")}, "is not what this machine makes"),
    "optimized": ({f"{_SIX}.opt-2.pyc": compiled(b"evil = 1\n", level=2)}, "opt-2.pyc is not what this machine makes"),
    "damaged": ({f"{_SIX}.pyc": compiled(b"")[:20]}, "is not what this machine makes"),
    "no-code": ({f"{_SIX}.pyc": compiled(b"")[:16] + marshal.dumps([1])}, "is not what this machine makes"),
} if _CAN_COMPILE else {}  # fmt: skip
_EVIL = raw_archive(raw_header(f"{SITE}/evil.pth"))
_LONG = f"srv/{'harmless' * 12}"
OTHERS: dict[str, tuple[tuple[Files | bytes, ...], Change | None, str, str]] = {
    "python": (({"opt/venv/bin/python": Link("/usr/bin/python3.12")},), None, "python", "python3.12"),
    "pip-check": (
        (images.package(SITE, "six", "1.16.0", {"six/__init__.py": b""}, ("absent>=1",)),),
        None,
        "pip check",
        "requires absent",
    ),
    "conflict": (
        (images.package(SITE, "six", "1.16.0", {"six/__init__.py": b""}, ("numpy<1",)),),
        None,
        "pip check",
        "numpy<1, but 1.26.4",
    ),
    "syntax": (({f"{APP}/task.py": b"def train(:\n"},), None, "trainer", f"/{APP}/task.py:1"),
    "inner-import": (({f"{APP}/model.py": b"import absl\n"},), None, "trainer", "no module absl"),
    "netrc": (({"root/.netrc": b"machine x login y password z\n"},), None, "secrets", "/root/.netrc"),
    "history": ((), _history("RUN curl -H 'password: hunter2hunter2' x"), "settings", "history: RUN holds"),
    "secret-whiteout": (({"app/.npmrc": b"x=y"}, {"app/.npmrc": None}), None, "secrets", "/app/.npmrc"),
    "secret-opaque": (({"data/.netrc": b"x"}, {"data/.wh..wh..opq": b""}), None, "secrets", "/data/.netrc"),
    "secret-content": (({"srv/account": _KEY},), None, "secrets", "/srv/account in layer 4"),
    "twice": (({"srv/a": b"", "srv//a": b""},), None, "layers", "/srv/a is in it twice"),
    "hard-out": (({"srv/l": Link("../../etc/passwd", hard=True)},), None, "layers", "hard link to ../../etc/passwd"),
    "hard-none": (({"srv/l": Link("/etc/shadow", hard=True)},), None, "layers", "hard link to /etc/shadow"),
    "garbage": ((b"no archive" * 200,), None, "layers", "layer 4 "),
    "out-of-root": (({f"../../{SITE}/evil.pth": b""},), None, "wheels", "/evil.pth belongs to no wheel"),
    "zeros-inside": ((bytes(512) + _EVIL,), None, "layers", "a block of zeros in its middle"),
    "damaged-inside": ((_EVIL[:-1024] + b"x" * 512 + _EVIL,), None, "layers", "it is damaged"),
    "sparse": ((raw_archive(raw_header("srv/x", kind="S")),), None, "layers", "type 'S'"),
    "below-zero": ((raw_archive(raw_header("srv/x", size=b"\xff" * 12)),), None, "layers", "an entry of -1 bytes"),
    "global-name": ((raw_header("x", kind="g", data=_pax(_LONG)) + _EVIL,), None, "wheels", "/evil.pth belongs to"),
    "gnu-prefix": (
        (raw_archive(raw_header(f"{SITE}/evil.pth", prefix="17", gnu=True)),),
        None,
        "wheels",
        "/evil.pth belongs to no wheel",
    ),
    "two-names": (
        (
            raw_header("x", kind="x", data=_pax(_LONG))
            + raw_header("x", kind="L", data=f"{SITE}/evil.pth\0".encode())
            + raw_archive(raw_header("srv/x")),
        ),
        None,
        "wheels",
        "/evil.pth belongs to no wheel",
    ),
    "bomb": (({"srv/zeros": bytes(11 << 20)},), None, "layers", "it inflates to more than 10 MB"),
    "diff-id": ((), _diff_id(2), "layers", "and the config says sha256:000000000000"),
    "base": ((), _diff_id(0), "base", "0 of the base's 1 layers"),
    "base-interpreter": (
        ({"usr/local/bin/python3.11": b"evil"},),
        None,
        "base",
        "/usr/local/bin/python3.11 of layer 4",
    ),
    "base-library": (
        ({"usr/local/lib/python3.11/os.py": b"evil"},),
        None,
        "base",
        "/usr/local/lib/python3.11/os.py of layer 4",
    ),
    "base-file-gone": (({"etc/os-release": None},), None, "base", "/etc/os-release is removed by layer 4"),
    "base-file-empty": (({"etc/os-release": b""},), None, "base", "/etc/os-release of layer 4 is put there"),
    "base-file-folder": (({"etc/os-release/x": b"x"},), None, "base", "/etc/os-release/x of layer 4"),
    "preload": (({"etc/ld.so.preload": b"/srv/evil.so\n"},), None, "base", "/etc/ld.so.preload of layer 4"),
    "opaque-etc": (({"etc/.wh..wh..opq": b""},), None, "base", "/etc"),
    "opaque-root": (({".wh..wh..opq": b""},), None, "base", "is removed by layer"),
    "removed-behind": (
        (raw_archive(raw_header(f"{APP}/model.py", data=b"layers = 2\n"), raw_header(f"{APP}/.wh.model.py")),),
        None,
        "layers",
        f"/{APP}/model.py is in it, and is removed behind that",
    ),
    "folder-removed-behind": (
        (raw_archive(raw_header(f"{APP}/model.py", data=b"layers = 2\n"), raw_header("app/.wh.trainer")),),
        None,
        "layers",
        f"/{APP} is in it, and is removed behind that",
    ),
    "opaque-by-attribute": (
        ({"opt/venv": Raw(b"", kind=b"5", mode=0o755, capability=True)},),
        None,
        "layers",
        "/opt/venv has extended attributes",
    ),
    "os-version": ((), _config(**{"os.version": "10.0"}), "platform", "os.version 10.0"),
    "variant": ((), _config(variant="v4"), "platform", "variant v4"),
    "os-features": ((), _config(**{"os.features": ["x"]}), "platform", "os.features"),
    "path-twice": ((), change_env(lambda env: ["PATH=/evil", *env]), "environment", "1 names are there twice"),
    "no-value": ((), change_env(lambda env: [*env, "LD_PRELOAD"]), "environment", "LD_PRELOAD was not planned"),
    "loader-path": ((), change_env(lambda env: [*env, "LD_LIBRARY_PATH=/srv"]), "environment", "was not planned"),
    "start-up": ((), change_env(lambda env: [*env, "PYTHONSTARTUP=/srv/x.py"]), "environment", "was not planned"),
    "stop-signal": ((), _settings(StopSignal="SIGKILL"), "environment", "StopSignal is not as planned"),
    "shell": ((), _settings(Shell=["/srv/sh"]), "environment", "Shell is not as planned"),
    "ports": ((), _settings(ExposedPorts={"22/tcp": {}}), "environment", "ExposedPorts is not as planned"),
    "revision": ((), _change_label("org.opencontainers.image.revision"), "environment", "image.revision has another"),
    "fewer-layers": ((), lambda config: config["rootfs"]["diff_ids"].pop(), "layers", "and the config 2"),
    "arm64": ((), _config(architecture="arm64"), "platform", "linux/arm64"),
    "windows": ((), _config(os="windows"), "platform", "windows/amd64"),
    "entry-point": ((), _settings(Entrypoint=["/bin/sh"]), "entry point", "/bin/sh"),
    "cmd": ((), _settings(Cmd=["--evil"]), "entry point", "--evil"),
    "arguments-in-cmd": ((), _move_arguments, "entry point", "python, with CMD -m trainer.task"),
    "volume": ((), _settings(Volumes={"/app": {}}), "environment", "Volumes is not as planned"),
    "health-check": ((), _settings(Healthcheck={"Test": ["CMD", "evil"]}), "environment", "Healthcheck is not as"),
    "on-build": ((), _settings(OnBuild=["RUN evil"]), "environment", "OnBuild is not as planned"),
    "user": ((), _settings(User="1000"), "user", "1000"),
    "no-settings": ((), _config(config=None), "environment", "PATH is missing"),
    "working-folder": ((), _settings(WorkingDir="/tmp"), "environment", "the working folder is /tmp, not /app"),
    "env-gone": ((), change_env(lambda env: env[:-1]), "environment", " is missing"),
    "env-other": ((), change_env(lambda env: [*env, "TF_CPP_MIN_LOG_LEVEL=0"]), "environment", "has another value"),
    "pythonpath": ((), change_env(lambda env: [*env, "PYTHONPATH=/evil"]), "environment", "PYTHONPATH was not planned"),
    "env-secret": (
        (),
        change_env(lambda env: [*env, "DB_PASSWORD=hunter2hunter2"]),
        "settings",
        "DB_PASSWORD in the env",
    ),
    "label": ((), _settings(Labels={}), "image", "made from no key"),
    "key": ((), _settings(Labels={"dev.imgtool.key": "0" * 64}), "image", "made from 000000000000"),
}
SOUND: dict[str, Files] = {
    "as-built": {},
    "same-code-again": {f"{APP}/model.py": b"layers = 2\n"},
    "parents": {"": FOLDER, "app": FOLDER, APP: FOLDER, "opt/venv/lib": FOLDER},
}
_ADDED = "is put there by no instruction"
ADDED: dict[str, Files] = {
    "sbin": {"usr/local/sbin/uname": b"#!/bin/sh\n"},
    "library": {"usr/lib/x86_64-linux-gnu/libnvinfer.so.8": b"\x7fELF"},
    "hwcaps": {"usr/local/lib/glibc-hwcaps/x86-64-v2/libpython3.11.so.1.0": b"\x7fELF"},
    "git": {"root/.gitconfig": b"[core]\n"},
    "certificate": {"etc/ssl/certs/evil.pem": b"-----BEGIN CERTIFICATE-----\n"},
    "keras": {"root/.keras/keras.json": b"{}"},
    "data": {"data/mnist.npz": b"x" * 10},
    "dpkg": {"var/lib/dpkg/status": b"Package: libc6\n"},
    "dots": {"srv/../srv/a": b"", "/srv/b": b""},
    "setuid": {"srv/shell": Raw(b"", mode=0o4755)},
    "pipe": {"srv/pipe": Raw(b"", kind=b"6")},
    "device": {"srv/sda": Raw(b"", kind=b"3")},
    "root-mode": {"": Raw(b"", kind=b"5", mode=0o700)},
    "tmp-mode": {"tmp": Raw(b"", kind=b"5", mode=0o700)},
    "library-folder": {"usr/lib/python3.11": Raw(b"", kind=b"5", mode=0o777, uid=1000)},
    "empty-init": {"usr/lib/python3.11/json/__init__.py": b""},
    "interpreter-folder": {"usr/bin/python3.11": FOLDER},
    "sh": {"usr/local/sbin/sh": b"#!/bin/sh\n"},
    "gsutil": {"usr/local/bin/gsutil": b"#!/bin/sh\n"},
    "libc": {"usr/local/lib/libc.so.6": b"\x7fELF"},
    "libraries": {f"usr/local/lib/lib{name}.so.1": b"\x7fELF" for name in ("z", "m", "dl", "stdc++")},
    "loader": {"etc/ld.so.conf.d/evil.conf": b"/srv\n"},
    "loader-cache": {"etc/ld.so.cache": b"glibc-ld.so.cache1.1"},
    "pip": {"etc/pip.conf": b"[global]\n"},
    "resolver": {"etc/resolv.conf": b"nameserver 10.0.0.1\n"},
    "hosts": {"etc/hosts": b"10.0.0.1 storage.googleapis.com\n"},
    "users": {"etc/passwd": b"root::0:0::/:/bin/sh\n"},
    "names": {"etc/nsswitch.conf": b"hosts: files\n"},
    "profile": {"etc/profile.d/evil.sh": b"true\n"},
    "bashrc": {"root/.bashrc": b"true\n"},
    "vim": {"root/.vimrc": b"autocmd\n"},
    "ssl-module": {"usr/lib/x86_64-linux-gnu/ossl-modules/evil.so": b"\x7fELF"},
    "zip": {"usr/local/lib/python311.zip": b"PK\x05\x06" + bytes(18)},
    "paths-of-python": {"usr/local/bin/python._pth": b"/srv\n", "usr/local/bin/python311._pth": b"/srv\n"},
    "pyvenv-of-base": {"usr/local/bin/pyvenv.cfg": b"home = /srv\n"},
    "site-of-base": {"usr/local/lib/python3.11/site-packages/evil.pth": b"import evil\n"},
    "usercustomize": {"root/.local/lib/python3.11/site-packages/usercustomize.py": b""},
    "bytecode-of-base": {"usr/local/lib/python3.11/__pycache__/os.cpython-311.pyc": b"x"},
    "dlopen": {"lib64/libcuda.so.1": b"\x7fELF"},
    "cron": {"etc/cron.d/evil": b"* * * * * root true\n"},
    "link-out": {"usr/local/bin/uname": Link("/srv/uname")},
    "empty-folder": {"usr/local/cuda": FOLDER},
    "name-of-two-lines": {"srv/a\nb": b""},
    "look-alike": {"usr/local/bin/pythоn3": b"#!/bin/sh\n"},  # noqa: RUF001 - the letter is Cyrillic
    "beside-venv": {"opt/venv2/bin/python": b"#!/bin/sh\n"},
    "above-venv": {"opt": Raw(b"", kind=b"5", mode=0o777)},
}
MODES: dict[str, tuple[Files, str]] = {
    "venv": ({"opt/venv": Raw(b"", kind=b"5", mode=0)}, "wheels"),
    "app": ({"app": Raw(b"", kind=b"5", mode=0o777, uid=7)}, "trainer"),
    "folder": ({APP: Raw(b"", kind=b"5", mode=0o777, uid=7)}, "trainer"),
    "file": ({f"{APP}/model.py": Raw(b"layers = 2\n", mode=0)}, "trainer"),
    "owner": ({f"{APP}/model.py": Raw(b"layers = 2\n", uid=1000)}, "trainer"),
    "capability": ({f"{APP}/model.py": Raw(b"layers = 2\n", capability=True)}, "trainer"),
    "package": ({f"{SITE}/six/__init__.py": Raw(b"", mode=0o666)}, "wheels"),
    "pipe": ({f"{APP}/model.py": Raw(b"", kind=b"6")}, "trainer"),
    "setuid": ({f"{SITE}/six/__init__.py": Raw(b"", mode=0o4644)}, "wheels"),
    "group": ({SITE: Raw(b"", kind=b"5", mode=0o2755)}, "wheels"),
    "code-owner": ({f"{SITE}/numpy/__init__.py": Raw(b"", uid=1000)}, "wheels"),
    "device": ({f"{SITE}/six/__init__.py": Raw(b"", kind=b"3")}, "wheels"),
}
_SIX_INFO = f"{SITE}/six-1.16.0.dist-info/RECORD"
FORGED: dict[str, Files] = {  # with a RECORD that says the same
    "pth": {f"{SITE}/evil.pth": b"import evil\n", _SIX_INFO: b"evil.pth,,\nsix/__init__.py,,\n"},
    "code": {
        f"{SITE}/six/__init__.py": b"evil = 1\n",
        _SIX_INFO: b"six/__init__.py,sha256=I5nHOc94hH_E24YLeZHsc8KlkjJUc-_O4sIj2tTHGDs,9\n",
    },
    "library": {f"{SITE}/evil.so": b"\x7fELF", _SIX_INFO: b"evil.so,,4\nsix/__init__.py,,\n"},
    "sitecustomize": {f"{SITE}/sitecustomize.py": b"", _SIX_INFO: b"sitecustomize.py,,0\nsix/__init__.py,,\n"},
    "start": {  # a file that answers for itself: it replaces what a program in the image asks
        f"{SITE}/zzevil.pth": b"import zzevil\n",
        f"{SITE}/zzevil.py": b"import os\nos.write = lambda file, data: len(data)\n",
        _SIX_INFO: b"zzevil.pth,,\nzzevil.py,,\nsix/__init__.py,,\n",
    },
    "big": {f"{SITE}/weights.bin": bytes(9 << 20), f"{SITE}/evil.pth": b"import evil\n", _SIX_INFO: b"evil.pth,,\n"},
    "contents": {
        f"{SITE}/numpy/__init__.py": b"evil = 1\n",
        f"{SITE}/zzevil.pth": b"import evil\n",
        _SIX_INFO: b"zzevil.pth,,\n",
    },
    "version": {
        f"{SITE}/six-1.16.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: six\nVersion: 1.16.0\n",
        _SIX_INFO: b"six/__init__.py,,\n",
    },
    "record-alone": {_SIX_INFO: b""},
    "bytecode": {f"{SITE}/evil.pyc": b"x", _SIX_INFO: b"evil.pyc,,\n"},
}
