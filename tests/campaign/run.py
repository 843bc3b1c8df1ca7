"""Builds cases directly and by an Engine, and says of each whether they agree."""

from __future__ import annotations

import gzip
import io
import json
import os
import posixpath
import re
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import plans
from tests.campaign.cases import IGNORES, Base, Case, write_context
from tests.campaign.trees import Tree, tree_of
from training_imgtool.context.context import Context, scan
from training_imgtool.core.errors import InputError, NeedsEngineError
from training_imgtool.core.reference import parse_repository
from training_imgtool.direct.base_files import BaseReader
from training_imgtool.direct.build import ParentImage, build_image, plan_stages
from training_imgtool.direct.image.image import StoredImage
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.stage_plan import StageInputs, split_stages
from training_imgtool.direct.wheels.layer_tools import LayerTools
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.parse import parse
from training_imgtool.registry.manifests import (
    DOCKER_CONFIG,
    DOCKER_LAYER_GZIP,
    DOCKER_MANIFEST,
    Descriptor,
    parse_manifest,
    sha256_digest,
)

COMPARED = (
    "Cmd", "Entrypoint", "Env", "ExposedPorts", "Healthcheck", "Labels", "OnBuild", "Shell", "StopSignal", "User",
    "Volumes", "WorkingDir",
)  # fmt: skip
_TOO_NEW = re.compile(
    r"requires BuildKit|Unknown flag: link|unknown flag: link|missing ':' in substitution"
)  # 20.10 lacks what newer ones have
_LOCKED = plans.locked()
_WHEELS_STAGE = (
    f"FROM base AS wheels\nCOPY {install_step.context_folder(_LOCKED)}/ {install_step.WHEELS}/\n"
    f"RUN {install_step.install_script(_LOCKED)}\n"
)
_COPY_PACKAGES = f"COPY --from=wheels {install_step.VENV} {install_step.VENV}\n"


@dataclass(frozen=True)
class Image:
    """An image as far as it is compared."""

    tree: Tree
    settings: dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What became of a case: `equal`, `handed over`, `refused`, `too new` for this Engine, or `DIFFERENT`; and why."""

    case: Case
    outcome: str
    reason: str = ""


class Direct:
    """Builds cases directly, in memory but for a cache of layers."""

    def __init__(self, contexts: Sequence[Context], cache: Path) -> None:
        self._contexts = contexts
        self._cache = LayerCache(cache)
        self._reader = BaseReader(self._cache)

    def build(self, case: Case) -> Image | str:
        """The image, or why there is none; the reason begins with `handed over` or `refused`."""
        try:
            return self._build(case)
        except NeedsEngineError as error:
            return f"handed over: {error.message}"
        except InputError as error:
            return f"refused: {error.message}"

    def _build(self, case: Case) -> Image:
        base, blobs = case.base, {}
        for layer in base.archives:
            packed = gzip.compress(layer, 1, mtime=0)
            blobs[sha256_digest(packed)] = packed
        layers = tuple(Descriptor(DOCKER_LAYER_GZIP, digest, len(data)) for digest, data in blobs.items())
        document = {
            "schemaVersion": 2,
            "mediaType": DOCKER_MANIFEST,
            "config": Descriptor(DOCKER_CONFIG, sha256_digest(base.config), len(base.config)).document(),
            "layers": [layer.document() for layer in layers],
        }
        manifest = parse_manifest(json.dumps(document).encode(), DOCKER_MANIFEST, "base")
        dockerfile = parse(text_of(case, f"example.com/base@{manifest.digest}"))
        if not any(stage.name == "role" for stage in dockerfile.stages):
            raise InputError("the text before FROM goes on in its line")
        inputs = StageInputs(context=self._contexts[case.ignore], locked=_LOCKED)
        plan = split_stages(dockerfile, "role", inputs)
        if plan.engine_stage is not None:
            raise NeedsEngineError(f"stage {plan.engine_stage.label}")
        files = self._reader.files(None, lambda: layers, lambda layer: iter((blobs[layer.digest],)))
        tools = LayerTools(cache=self._cache, wheel_path=lambda _: Path(), find_interpreter=lambda _: None)
        stored = StoredImage(manifest, base.config, parse_repository("example.com/base"))
        parent = ParentImage(stored=stored, files=files)
        planned = plan_stages(dockerfile, plan.stages, inputs, parent)
        made = build_image(planned, inputs, tools, parent=parent)
        added = [gzip.decompress(b"".join(layer.open())) for layer in made.layers]
        return Image(tree_of([*base.archives, *added]), _compared(json.loads(made.config)["config"]))


def text_of(case: Case, base: str) -> str:
    """The whole Dockerfile of a case."""
    if case.below:
        return f"{case.before}FROM {base} AS below\n{case.below}FROM below AS role\n{case.text}"
    if not case.packages:
        return f"{case.before}FROM {base} AS role\n{case.text}"
    return f"FROM {base} AS base\n{_WHEELS_STAGE}FROM base AS role\n{_COPY_PACKAGES}{case.text}"


def _compared(settings: dict[str, Any] | None) -> dict[str, Any]:
    compared = {key: (settings or {}).get(key) or None for key in COMPARED}
    if compared["WorkingDir"]:  # the classic builder keeps the slash of `WORKDIR /a/`, BuildKit does not
        compared["WorkingDir"] = posixpath.normpath(compared["WorkingDir"])
    return compared


class Engine:
    """Docker's Engine with the classic builder or BuildKit; takes all bases at once, gives all images at once."""

    def __init__(self, contexts: Sequence[Path], *, buildkit: bool = False) -> None:
        self._contexts = contexts
        self._buildkit = buildkit
        self._place = f"imgtool-campaign-{os.getpid()}"
        self._images: set[str] = set()

    def load(self, bases: Iterable[Base]) -> None:
        """Loads bases under names of this campaign."""
        stream = io.BytesIO()
        listed = []
        with tarfile.open(fileobj=stream, mode="w") as tar:
            for base in bases:
                names = [f"{sha256_digest(layer)[7:]}/layer.tar" for layer in base.archives]
                listed.append({"Config": f"{base.name}.json", "RepoTags": [self._name(base)], "Layers": names})
                for name, data in [*zip(names, base.archives, strict=True), (f"{base.name}.json", base.config)]:
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
                self._images.add(self._name(base))
            data = json.dumps(listed).encode()
            info = tarfile.TarInfo("manifest.json")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        _docker("load", "--quiet", stdin=stream.getvalue())

    def build(self, case: Case) -> str:
        """The image's ID; raises EngineRefusedError."""
        text = text_of(case, self._name(case.base))
        command = ["buildx", "build"] if self._buildkit else ["build", "--rm", "--force-rm"]
        environment = {"DOCKER_BUILDKIT": "1" if self._buildkit else "0"}
        arguments = [*command, "--quiet", "--target", "role", "--file", "-", str(self._contexts[case.ignore])]
        image = _docker(*arguments, stdin=text.encode(), env=environment).decode().strip()
        self._images.add(image)
        return image

    def images(self, ids: Sequence[str]) -> dict[str, Image]:
        """What was built, by ID."""
        if not ids:
            return {}
        images = {}
        with tarfile.open(fileobj=io.BytesIO(_docker("save", *dict.fromkeys(ids)))) as saved:
            content = {member.name: member for member in saved}

            def read(name: str) -> bytes:
                member = content[name]
                while member.issym() or member.islnk():  # equal layers are links to one
                    folder = posixpath.dirname(member.name)
                    member = content[posixpath.normpath(posixpath.join(folder, member.linkname))]
                file = saved.extractfile(member)
                assert file is not None, name
                return file.read()

            for one in json.loads(read("manifest.json")):
                config = json.loads(read(one["Config"]))
                digest = "sha256:" + posixpath.basename(one["Config"]).removesuffix(".json")
                images[digest] = Image(tree_of(map(read, one["Layers"])), _compared(config["config"]))
        return images

    def clear(self) -> None:
        """Removes what the campaign left."""
        names = sorted(self._images, key=lambda name: not name.startswith("sha256:"))
        for at in range(0, len(names), 100):
            subprocess.run(["docker", "rmi", "--force", *names[at : at + 100]], capture_output=True, check=False)

    def _name(self, base: Base) -> str:
        return f"{self._place}/base:{base.name}"


class EngineRefusedError(Exception):
    """The Engine ended a command with an error."""


def _docker(*arguments: str, stdin: bytes | None = None, env: dict[str, str] | None = None) -> bytes:
    done = subprocess.run(
        ["docker", *arguments], input=stdin, capture_output=True, check=False, env={**os.environ, **(env or {})}
    )
    if done.returncode:
        raise EngineRefusedError(done.stderr.decode(errors="replace").strip()[-400:])
    return done.stdout


@contextmanager
def campaign(*, buildkit: bool = False) -> Iterator[Callable[[Sequence[Case]], list[Verdict]]]:
    """Gives a function that runs cases; what it left in the Engine is removed at the end."""
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place, f"context-{number}") for number in range(len(IGNORES))]
        for folder, ignore in zip(folders, IGNORES, strict=True):
            write_context(folder, ignore)
        requirements = f"{install_step.context_folder(_LOCKED)}/{install_step.REQUIREMENTS}"
        direct = Direct([scan(folder).with_bytes(requirements, b"") for folder in folders], Path(place, "cache"))
        engine = Engine(folders, buildkit=buildkit)
        try:
            yield lambda cases: _run(cases, direct, engine)
        finally:
            engine.clear()


def _run(cases: Sequence[Case], direct: Direct, engine: Engine) -> list[Verdict]:
    """What becomes of each case. What the direct builder does not make is not built by the Engine either."""
    made = {case: direct.build(case) for case in cases}
    ready = {case: image for case, image in made.items() if isinstance(image, Image)}
    engine.load({case.base.name: case.base for case in ready}.values())
    with ThreadPoolExecutor(4) as pool:
        built = dict(zip(ready, pool.map(lambda case: _built(engine, case), ready), strict=True))
    images = engine.images([found for found in built.values() if found.startswith("sha256:")])
    verdicts = []
    for case, result in made.items():
        if isinstance(result, Image):
            theirs = images.get(built[case])
            why = "\n".join(differences(result, theirs)) if theirs else f"the Engine refuses: {built[case]}"
            outcome = "too new" if not theirs and _TOO_NEW.search(why) else "DIFFERENT" if why else "equal"
            verdicts.append(Verdict(case, outcome, why))
        else:
            outcome, _, reason = result.partition(": ")
            verdicts.append(Verdict(case, outcome, reason))
    return verdicts


def _built(engine: Engine, case: Case) -> str:
    try:
        return engine.build(case)
    except EngineRefusedError as error:
        return str(error)


def differences(ours: Image, theirs: Image) -> list[str]:
    """What differs between a direct image and an Engine's, in words."""
    found = [
        f"/{path}: direct {ours.tree.get(path)}, Engine {theirs.tree.get(path)}"
        for path in sorted({*ours.tree, *theirs.tree})
        if ours.tree.get(path) != theirs.tree.get(path)
    ]
    return found + [
        f"{key}: direct {ours.settings[key]!r}, Engine {theirs.settings[key]!r}"
        for key in COMPARED
        if ours.settings[key] != theirs.settings[key]
    ]


def summary(verdicts: Iterable[Verdict]) -> str:
    """How many of each outcome."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
