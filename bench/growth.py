"""`python -m bench.growth`: draws bench/growth.svg, how a push's CPU time grows with roles, packages, files and variants.

CPU time, because it hardly depends on what else the machine does. A size of one kind leaves the others at their least.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
import shutil
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

from bench.__main__ import IMAGE
from bench.installed import install
from bench.processes import run
from bench.project import environment
from bench.world import copy_base, open_registry

PICTURE = Path(__file__).resolve().parent / "growth.svg"
SIZES = {
    "roles": (1, 2, 3, 4),
    "packages": (0, 100, 200, 400),
    "files": (1, 1000, 3000, 10000),
    "variants": (1, 2, 3, 4),
}
LEAST = {kind: sizes[0] for kind, sizes in SIZES.items()}
ROLES = ("master", "worker", "ps", "evaluator")
STEPS = {"from nothing": "#b35c00", "one line changed": "#0b62a4", "nothing changed": "#3b7a3b"}
MANIFEST = "application/vnd.oci.image.manifest.v1+json,application/vnd.docker.distribution.manifest.v2+json"


def main() -> int:
    sources = dict(part.split("=") for part in os.environ.get("IMGTOOL_MIRRORS", "").split(",") if "=" in part)
    with tempfile.TemporaryDirectory(prefix="imgtool-growth-") as name:
        folder = Path(name)
        with open_registry(folder) as (registry, _):
            copy_base(sources["docker.io"], IMAGE, registry.host)
            _add_tags(registry.host)
            imgtool, measured = str(install(folder / "imgtool").command), {}
            for case in ({**LEAST, kind: size} for kind, sizes in SIZES.items() for size in sizes):
                key = tuple(case.values())
                if key not in measured:
                    measured[key] = dict(_measure(folder / "-".join(map(str, key)), case, imgtool, registry.host))
                    print(case, measured[key], flush=True)
    PICTURE.write_text(draw(measured))
    return 0


def _add_tags(host: str) -> None:
    """Gives the base a tag for each variant."""
    address = f"http://{host}/v2/library/python/manifests/"
    asked = urllib.request.Request(address + IMAGE.partition(":")[2], headers={"Accept": MANIFEST})
    with urllib.request.urlopen(asked) as got:
        body, headers = got.read(), {"Content-Type": got.headers["Content-Type"]}
    for role in ROLES:
        urllib.request.urlopen(urllib.request.Request(address + role, body, headers, method="PUT")).close()


def _measure(folder: Path, case: dict[str, int], imgtool: str, host: str) -> Iterator[tuple[str, float]]:
    """Yields the CPU seconds of each step; wheels are on the machine, layers and images are not."""
    count, base = max(case["roles"], case["variants"]), ", base: 'python:{0}'" if case["variants"] > 1 else ""
    row = "  {0}: {{machine: n1-standard-4, env: {{ROLE: {0}}}" + base + "}}\n"
    (folder / "wheels").mkdir(parents=True)
    (folder / "trainer").mkdir()
    (folder / "trainer/task.py").write_text("import tensorflow as tf\n\nprint(tf.__version__)\n")
    for number in range(case["files"] - 1):
        (folder / f"trainer/m{number}.py").write_text(f"X = {number}\n" * 20)
    names = [_wheel(folder / "wheels", number) for number in range(case["packages"])]
    (folder / "requirements.txt").write_text("\n".join(["--find-links ./wheels", *names]) + "\n")
    head = f"name: mnist\nregistry: {host}/{folder.name}\ntensorflow: '2.15.1'\nrequirements: requirements.txt\n"
    (folder / "image.yaml").write_text(f"{head}roles:\n" + "".join(map(row.format, ROLES[:count])))
    environ = environment(folder / "cache", host)
    for words in (("lock",), ("render", "-o", "rendered")):  # fetches the wheels
        run([imgtool, *words], environ=environ, folder=folder)
    for step in STEPS:
        if step == "one line changed":
            with (folder / "trainer/task.py").open("a") as task:
                task.write("# changed\n")
        yield step, run([imgtool, "push", "--locked"], environ=environ, folder=folder).cpu
    shutil.rmtree(folder)


def _wheel(folder: Path, number: int) -> str:
    name = f"bench_package_{number}"
    info = f"{name}-1.dist-info"
    files = {f"{name}/m{n}.py": f"def f(x):\n    return x + {n}\n" * 50 for n in range(5)}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    sums = {path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for path, text in files.items()}
    rows = [f"{path},sha256={digest.decode().rstrip('=')},{len(files[path])}\n" for path, digest in sums.items()]
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"])
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name


def draw(measured: dict[tuple[int, ...], dict[str, float]]) -> str:
    """Draws a chart per kind, with one logarithmic scale from 0.1 to 100 seconds."""
    shapes = [_text(60 + at * 160, 520, step, colour) for at, (step, colour) in enumerate(STEPS.items())]
    for at, (kind, sizes) in enumerate(SIZES.items()):
        left, top = 60 + at % 2 * 400, 50 + at // 2 * 240
        shapes.append(_text(left + 180, top - 12, kind))
        for seconds in (0.1, 1.0, 10.0, 100.0):
            y = top + _height(seconds)
            shapes += [f'<path d="M{left} {y:.0f}h340" stroke="#ddd"/>', _text(left - 22, y + 4, f"{seconds:g} s")]
        places = {size: left + 20 + 300 * size / sizes[-1] for size in sizes}
        shapes += [_text(x, top + 188, str(size)) for size, x in places.items()]
        for step, colour in STEPS.items():
            found = {places[size]: measured[(*{**LEAST, kind: size}.values(),)][step] for size in sizes}
            line = " ".join(f"{x:.0f},{top + _height(cpu):.1f}" for x, cpu in found.items())
            shapes.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
            below = 16 if step == "nothing changed" else -6
            shapes += [_text(x, top + _height(cpu) + below, f"{cpu:.2g}", colour) for x, cpu in found.items()]
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 535" font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="820" height="535" fill="white"/>', *shapes, "</svg>\n"])


def _height(seconds: float) -> float:
    return 170 - (math.log10(max(seconds, 0.1)) + 1) * 170 / 3


def _text(x: float, y: float, text: str, colour: str = "black") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.1f}" text-anchor="{"start" if y == 520 else "middle"}" fill="{colour}">{text}</text>'
    )


if __name__ == "__main__":
    sys.exit(main())
