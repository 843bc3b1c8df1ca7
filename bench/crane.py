"""`crane append`: the code as one layer on images that hold all the rest, the roles side by side.

The images below (Python, packages, environment, entry point; one per role) are made beforehand, so it does less than
the others: it cannot tell whether they are still right. Where packages change, `uv pip install` into a folder
(from the wheels at hand), the compiler that imgtool's Dockerfiles call, and tar make that layer for it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench import project
from bench.contenders import Track
from bench.processes import Usage, run
from bench.project import Variation

_TAR = "tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 "
_CODE = _TAR + "--exclude=__pycache__ --transform=s,^,app/, -cf code.tar trainer\n"
_ROLE = '"$CRANE" append -b "$REPOSITORY:base-$role" -f code.tar -t "$REPOSITORY:$role" >/dev/null'
_WAIT = "for pid in $pids; do wait $pid; done\n"
_PACKAGES = (
    """
rm -rf root && mkdir -p root/opt/venv/lib/python3.11/site-packages
"$UV" pip install --quiet --offline --no-index --no-deps --link-mode=hardlink --python "$PYTHON" \\
    --target root/opt/venv/lib/python3.11/site-packages --find-links "$WHEELS" -r "$WHEELS/requirements.txt"
"$PYTHON" -m compileall -q -j 0 -x /tests/ --invalidation-mode unchecked-hash root/opt/venv >/dev/null || true
(cd root && """
    + _TAR
    + """-cf ../packages.tar opt)
"$CRANE" append -b "$BASE" -f packages.tar -t "$REPOSITORY:base" >/dev/null
for role in $ROLES; do
    "$CRANE" mutate "$REPOSITORY:base" -t "$REPOSITORY:base-$role" --label "role=$role" $SETTINGS >/dev/null &
done
wait
"""
)


@dataclass
class Crane:
    """See the module."""

    track: Track
    crane: Path
    name: str
    packages: bool = False  # make the layer of packages too, in each run
    _folder: Path = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        self._folder = self.track.world.folder / f"crane-{self.track.name}{'-uv' if self.packages else ''}"
        self._variation = project.BASE

    def take(self, variation: Variation) -> None:
        self._variation = variation
        self._folder.mkdir(parents=True, exist_ok=True)
        run(
            ["cp", "-rT", str(self.track.projects.spec(variation) / "trainer"), str(self._folder / "trainer")],
            environ=os.environ,
            folder=self._folder,
        )

    def edit(self, mark: str) -> None:
        project.edit(self._folder / "trainer", mark)

    def new_repository(self) -> None:
        self._number += 1
        if not self.packages:
            self._folder.mkdir(parents=True, exist_ok=True)
            run(["sh", "-c", "set -e\n" + _PACKAGES], environ=self._environ, folder=self._folder)

    def new_machine(self) -> None:
        """Crane keeps nothing."""

    def new_packages(self, mark: str) -> None:
        """It makes them in every run."""

    def build(self, roles: tuple[str, ...], *, watch: bool = False) -> Usage:
        script = "set -e\n" + (_PACKAGES if self.packages else "") + _CODE
        first, *others = (f"role={role}\n{_ROLE}" for role in roles)
        # Not all at once: when the same layer comes twice at a time, registry 2.8 now and then refuses the manifest.
        script += f"{first}\n" + "".join(f'{other} &\npids="$pids $!"\n' for other in others) + _WAIT
        return run(["sh", "-c", script], environ=self._environ, folder=self._folder, watch=watch)

    def service_seconds(self) -> float:
        return 0.0

    @property
    def _repository(self) -> str:
        return f"{self.track.host}/crane-{self.track.name}-{self._number}"

    @property
    def _environ(self) -> dict[str, str]:
        wheels = next((self.track.projects.rendered(self._variation) / "context" / "wheels").iterdir())
        return {
            **os.environ,
            "CRANE": str(self.crane),
            "REPOSITORY": self._repository,
            "BASE": f"{self.track.host}/{self.track.world.base}",
            "UV": str(Path(sys.executable).parent / "uv"),
            "PYTHON": sys.executable,
            "WHEELS": str(wheels),
            "ROLES": " ".join(self.track.roles),
            "SETTINGS": " ".join(_SETTINGS),
        }


_SETTINGS = ("--workdir=/app", "--env=TF_CPP_MIN_LOG_LEVEL=2", "--entrypoint=/opt/venv/bin/python,-m,trainer.task")
