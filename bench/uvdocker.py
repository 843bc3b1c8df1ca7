"""`docker buildx bake --push` of a Dockerfile that installs the wheels with uv, as uv's guide to Docker advises.

The wheels are mounted and become no layer. They are installed in the stage that the roles share, so that nothing is
copied from stage to stage, and uv compiles their bytecode. The roles are one image with several tags, which is pushed
once. Otherwise this is `bake`, improved by hand.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from bench.bake import SHARED, Bake
from bench.processes import Usage
from bench.project import BASE, Variation

_UV = Path(sys.executable).parent / "uv"
_PACKAGES = """FROM {base} AS {shared}
ENV PATH="/opt/venv/bin:$PATH" PYTHONUNBUFFERED=1
RUN --network=none --mount=type=bind,source={wheels},target=/wheels --mount=type=bind,source=uv,target=/uv \\
    set -eu; \\
    /uv venv --quiet --no-project --allow-existing --python /usr/local/bin/python3 /opt/venv; \\
    /uv pip install --quiet --python /opt/venv/bin/python --no-cache --no-index --no-deps --compile-bytecode \\
        --find-links /wheels -r /wheels/requirements.txt

"""


class UvDockerfile(Bake):
    """See the module."""

    kind = "uv"

    def take(self, variation: Variation) -> None:
        if variation is not BASE:
            # Nothing that follows uses the image before; its packages may have gigabytes, three times.
            self.new_machine()
        super().take(variation)
        if variation is not BASE:
            self.send_context()

    def build(self, roles: tuple[str, ...], *, watch: bool = False) -> Usage:
        return super().build(roles[:1], watch=watch)

    def _write(self) -> None:
        super()._write()
        path = self._folder / "docker-bake.json"
        document = json.loads(path.read_text())
        for role in self.track.roles:
            document["target"][role]["tags"] = [*map(self.image, self.track.roles)]
        path.write_text(json.dumps(document, indent=1))

    def _adapt(self) -> None:
        shutil.copy2(_UV, self._folder / self.context / "uv")
        for role in self.track.roles:
            path = self._folder / f"{role}.Dockerfile"
            shared, found, own = path.read_text().partition(f"FROM {SHARED} AS")
            [base] = re.findall(r"^FROM (\S+) AS base$", shared, re.MULTILINE)
            [wheels] = re.findall(r"^COPY (wheels/\S+?)/ /wheels/$", shared, re.MULTILINE)
            path.write_text(_PACKAGES.format(base=base, shared=SHARED, wheels=wheels) + found + own)
