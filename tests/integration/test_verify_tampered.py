"""Every tampered image and every sound one by the command line: in containers of an Engine, and from the registry.

`make test` has a sample of these in `test_verify.py`, and all of them without a registry in tests/verify. `make long`
has one of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.integration.conftest import Run
from tests.integration.verify_world import Toy, open_toy
from tests.sampling import campaign
from tests.verify.images import Change, Layer
from tests.verify.tampering import ADDED, BYTECODE, CODE, FORGED, MODES, OTHERS, SOUND, VENV

pytestmark = [pytest.mark.registry, pytest.mark.long]
WAYS = [pytest.param("docker", marks=pytest.mark.engine), "direct"]
_BY_LISTING = {"base-file-gone", "base-file-empty", "base-file-folder"}  # containers do not show the base
_ONLY_SMALL = {"bomb"}  # its limit is the test's own; a real one inflates to 1 GiB
CASES: dict[str, tuple[Sequence[Layer | bytes], Change | None, str]] = {
    **{f"code-{name}": ((files,), None, "trainer") for name, (files, _) in CODE.items()},
    **{f"venv-{name}": ((files,), None, "wheels") for name, (files, _) in VENV.items()},
    **{f"added-{name}": ((files,), None, "base") for name, files in ADDED.items()},
    **{f"mode-{name}": ((files,), None, check) for name, (files, check) in MODES.items()},
    **{f"forged-{name}": ((files,), None, "wheels") for name, files in FORGED.items()},
    **{f"bytecode-{name}": ((files,), None, "bytecode") for name, (files, _) in BYTECODE.items()},
    **{name: row[:3] for name, row in OTHERS.items() if name not in _ONLY_SMALL},
}
_KINDS = {name: OTHERS[name][2] if name in OTHERS else name.partition("-")[0] for name in CASES}
ONE_OF_EACH_KIND = {kind: name for name, kind in _KINDS.items()}.values()


@pytest.fixture(scope="module")
def toy(registry_address: str, services_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    with open_toy(registry_address, services_env, tmp_path_factory.mktemp("verify")) as made:
        yield made


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", campaign(CASES, ONE_OF_EACH_KIND))
def test_a_tampered_image_ends_with_10_and_a_line(toy: Toy, imgtool: Run, name: str, way: str) -> None:
    if way == "docker" and name in _BY_LISTING:
        pytest.skip("a container shows only what the loader and Python read of the base")
    layers, change, check = CASES[name]
    env = toy.faulty(f"tampered-{name}", layers, change)
    done = imgtool("verify", "--engine", way, "--locked", toy.folder, env=env, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert done.returncode == 10, done.stderr
    says = "not proven: " if check == "bytecode" else "found "
    assert sum(line.startswith(f"Error: master: {check}: {says}") for line in lines) == 1, lines
    assert all("; expected " in line or says == "not proven: " for line in lines)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", campaign(SOUND, list(SOUND)[::8]))
def test_a_sound_image_passes(toy: Toy, imgtool: Run, name: str, way: str) -> None:
    env = toy.faulty(f"sound-{name}", [SOUND[name]] if SOUND[name] else [], None)
    done = imgtool("verify", "--engine", way, "--locked", toy.folder, env=env)
    assert "MISMATCH" not in done.stdout
