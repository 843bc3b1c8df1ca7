"""A small spec whose good image is in the registry, for tests that push faulty siblings of it and verify them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

from tests import plans
from tests.integration.conftest import BASE
from tests.integration.push_world import Machine, Wheels
from tests.oci.direct.wheels import as_wheel
from tests.verify import images
from tests.verify.images import Layer
from training_imgtool.base.reference import Digest, parse_reference, parse_repository
from training_imgtool.base.settings import from_environment
from training_imgtool.model.spec import Role
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.plan.inputs import Inputs


@dataclass(frozen=True)
class Toy:
    """A good image of a small spec, and where its faulty siblings go."""

    folder: Path
    inputs: Inputs
    good: Digest
    registries: Registries
    place: str
    env: dict[str, str]

    def faulty(self, name: str, *layers: Layer) -> dict[str, str]:
        """Pushes a faulty image under the tag of the good one in a repository of its own; the environment for it."""
        image = self.inputs.images[0]
        assert image.tag is not None
        repository = parse_repository(f"{self.place}/{name}/toy")
        images.derive(self.registries, self.good, layers, repository.tag(image.tag.name))
        return {**self.env, "IMGTOOL_REGISTRY": f"{self.place}/{name}"}


@contextmanager
def open_toy(
    registry_address: str, services_env: dict[str, str], root: Path, init: Path | None = None
) -> Iterator[Toy]:
    """Pushes the good image; with `init`, a wheel, in place of the script that stands for it."""
    place = f"{services_env['IMGTOOL_REGISTRY']}/verify/{token_hex(4)}"  # where no other run attached anything
    env = {"IMGTOOL_REGISTRY": f"{place}/good", "IMGTOOL_CACHE": str(root / "machine/cache")}
    settings = from_environment({**services_env, **env})
    with Registries(settings) as registries:
        repository, _, tag = BASE.partition(":")
        base = registries.at(registry_address).head(parse_repository(f"{registry_address}/{repository}").tag(tag))
        assert base is not None
        wheels = Wheels(root / "wheels")
        wheels.packages[0] = init or wheels.packages[0]
        wheels.add("six", version="1.16.0")
        code = {"tensorflow/__init__.py": images.TENSORFLOW.encode()}
        wheels.add("tensorflow_cpu", code, version="2.15.1", requires=("numpy (>=1.20,<2)", "absent; extra == 'x'"))
        locked = replace(
            plans.locked(
                wheels=tuple(sorted(map(as_wheel, wheels.packages), key=lambda wheel: wheel.name)), roles=(Role.MASTER,)
            ),
            base_digest=base,
            installer=as_wheel(wheels.pip),
        )
        folder = images.write_spec(root / "spec", locked)
        machine = Machine(root / "machine", "", "", **{**services_env, **env})
        machine.give(wheels)
        out, _ = machine.run("build", "--push", "--locked", "--engine", "direct", folder, cwd=folder)
        good = parse_reference(out.split()[1])
        assert isinstance(good, Digest)
        inputs = images.inputs_of(folder, settings)
        yield Toy(folder, inputs, good, registries, place, env)
