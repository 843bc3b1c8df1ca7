"""`docker buildx bake --push` of what people write by hand: pip install in a RUN whose cache mount keeps pip's downloads.

The Dockerfile is the rendered one but for where wheels come from: not from the context, but, hash by hash the same, from
an index on loopback that RUN reaches through the host's network. The base image that stands in for Docker's may have no
pip, so a stage before has the lock's one, unpacked and compiled as in the real image. Everything else, and what a newer
Engine allows, is as for `Bake`; bytecode is made on all cores too, though pip on its own would take one.

Warm: the base image, the context that was sent (code, requirements), pip itself, and pip's cache in the mount: a
download just before, untimed, sees to that, and a build that fetched a byte of a wheel nonetheless fails. The index's
pages are asked for again, and have not changed. Cold: the RUN that installs, the layer that is made of it, the
registry. What an Engine keeps is pruned before, the mount too, and what is warm is brought back, untimed.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass

from bench.bake import Bake
from bench.contenders import before_packages, mark_packages
from bench.index import SlowIndex
from bench.processes import FailedError, Usage
from bench.project import ROLES, Variation

_STAGE = re.compile(r"^FROM system AS wheels\nCOPY wheels/(\S+)/ /wheels/\nRUN ", re.MULTILINE)
_PIP = re.compile(r"/opt/venv/bin/python /wheels/installer/.* -r /wheels/requirements\.txt;")
_NEW_STAGE = """FROM system AS pip
COPY installer/ /installer/
RUN python3 -m zipfile -e /installer/*.whl /opt/pip && python3 -m compileall -q -j 0 /opt/pip

FROM pip AS wheels
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=bind,source=requirements.txt,target=/requirements.txt """
# pip keeps what comes over http only when the host is trusted.
_OPTIONS = "--quiet --index-url {url}/simple --trusted-host {host} --no-deps --require-hashes -r /requirements.txt"
_INSTALL = "/opt/venv/bin/python /opt/pip/pip --disable-pip-version-check install --no-compile --no-warn-script-location --root-user-action=ignore"
_DOWNLOAD = "python3 /opt/pip/pip --disable-pip-version-check download --dest /tmp/wheels"


@dataclass(kw_only=True)
class PipCache(Bake):
    """See the module."""

    index: SlowIndex
    kind: str = "pip"
    context: str = "code"  # another name than Bake's: BuildKit keeps what was sent by the name of its folder

    def take(self, variation: Variation) -> None:
        super().take(variation)
        path = self._folder / "docker-bake.json"
        document = json.loads(path.read_text())
        for target in document["target"].values():
            target |= {"network": "host"}
        path.write_text(json.dumps(document, indent=1))

    def new_packages(self, mark: str) -> None:
        text = before_packages(
            self._dockerfile().read_text(), f": {mark}; {_DOWNLOAD} {self._options} && rm -r /tmp/wheels"
        )
        self.send(text, "--network=host", "--allow=network.host")
        mark_packages(self._folder, mark)

    def build(self, roles: tuple[str, ...] = ROLES, *, watch: bool = False) -> Usage:
        before = self.index.sent
        usage = super().build(roles, watch=watch)
        if self.index.sent != before:
            raise FailedError(f"pip's cache was not warm: {self.index.sent - before} bytes of wheels were fetched")
        return usage

    def wheel_bytes(self) -> int:
        return self.index.sent

    def options(self) -> tuple[str, ...]:
        """Since 0.17 buildx asks for leave where a target asks for the host's network."""
        about = self.engine.do("buildx", "bake", "--help")
        return ("--allow=network.host",) if "--allow" in about else ()

    @property
    def _options(self) -> str:
        return _OPTIONS.format(url=self.index.url, host=self.index.url.partition("//")[2])

    def _adapt(self) -> None:
        context = self._folder / self.context
        for role in ROLES:
            path = self._folder / f"{role}.Dockerfile"
            text = path.read_text()
            stage = _STAGE.search(text)
            if not stage or not _PIP.search(text):
                raise FailedError(f"{path.name} does not install wheels in the way that was known")
            wheels = context / "wheels" / stage[1]
            text = _PIP.sub(lambda _: f"{_INSTALL} {self._options};", _STAGE.sub(lambda _: _NEW_STAGE, text))
            path.write_text(text)
        shutil.copy2(wheels / "requirements.txt", context)
        shutil.copytree(wheels / "installer", context / "installer")
        shutil.rmtree(context / "wheels")
