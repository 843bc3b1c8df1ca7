"""What an engine has to have before it builds a stage."""

from __future__ import annotations

from typing import IO, cast

import pytest

from training_imgtool.core.progress import Progress, silent
from training_imgtool.core.reference import Digest, Login
from training_imgtool.dockerfile.parse import parse
from training_imgtool.engines import StageBuild
from training_imgtool.engines.docker.engine import DockerEngine
from training_imgtool.engines.stage_runner import Recipe, StageRunner

BASE, TOOL = f"docker.io/library/base@sha256:{'a' * 64}", f"registry.example.com/tool@sha256:{'b' * 64}"
TEXT = (
    f"FROM {BASE} AS base\nRUN true\nFROM base\nCOPY --from={TOOL} /a /a\nCOPY --from=base /b /b\nCOPY --from=0 /c /c\n"
)
LOGIN = Login(username="robot", password="pw")


class FakeEngine:
    """Writes down what it pulls and builds."""

    def __init__(self) -> None:
        self.pulled: list[tuple[str, Login | None]] = []
        self.built: list[str] = []

    def image_id(self, key: str) -> str | None:
        del key
        return None

    def pull_base(self, base: Digest, platform: str, login: Login | None, progress: Progress) -> None:
        del platform, progress
        assert not any("COPY" in text for text in self.built)
        self.pulled.append((str(base), login))

    def build(self, stage: StageBuild, progress: Progress) -> str:
        del progress
        self.built.append(stage.dockerfile)
        return stage.key


def write_nothing(sources: tuple[str, ...], stream: IO[bytes]) -> None:
    """Writes a context with nothing in it."""
    del sources, stream


def run(text: str, **keys: str) -> tuple[dict[str, str], FakeEngine]:
    """Runs the last stage of a Dockerfile on an engine that has nothing."""
    engine, dockerfile = FakeEngine(), parse(text)
    login_for = {"registry.example.com": LOGIN}.get
    runner = StageRunner(
        cast("DockerEngine", engine),
        write_nothing,
        platform="linux/amd64",
        login_for=login_for,
        progress=silent,
        no_cache=False,
    )
    target = dockerfile.stages[-1].label
    recipe = Recipe(subject="worker", dockerfile=dockerfile, target=target, keys=keys, shared={})
    return runner.run((recipe,)), engine


def test_images_that_copy_names_are_pulled_with_their_login() -> None:
    """An engine that pulls one by itself has no login for it."""
    made, engine = run(TEXT, **{"base": "k0", "1": "k1"})
    assert made == {"worker": "k1"}
    assert engine.pulled == [(BASE, None), (TOOL, LOGIN)]
    assert f"COPY --from={TOOL} /a /a\nCOPY --from=k0 /b /b\nCOPY --from=k0 /c /c\n" in engine.built[1]


def test_a_stage_without_steps_is_the_stage_below_it() -> None:
    """Both have one key, and the runner makes each key once."""
    empty = f"FROM {BASE} AS venv\nRUN true\nFROM venv AS packages\n# a comment\n"
    text = f"{empty}FROM {BASE} AS own\nCOPY --from=packages /a /a\n"
    made, engine = run(text, venv="k0", packages="k0", own="k1")
    assert made == {"worker": "k1"}
    assert len(engine.built) == 2


@pytest.mark.parametrize("link", ["--link ", "--link=true ", "--chown=1:1 --link "])
def test_link_is_left_out_since_old_engines_refuse_it(link: str) -> None:
    _, engine = run(f"FROM {BASE}\nCOPY {link}/a--link /b\n", **{"0": "k0"})
    assert engine.built[0].endswith(f"\nCOPY {'--chown=1:1 ' if 'chown' in link else ''}/a--link /b\n")
