"""A base that is a single manifest for another platform, as `docker push` from a machine of another kind leaves it."""

from __future__ import annotations

import pytest

from tests.faults.base import base_image, put_base
from tests.faults.project import SPEC, Project

pytestmark = pytest.mark.registry

OTHERS = ("linux/arm64", "linux/arm64/v8", "linux/s390x", "windows/amd64")


@pytest.mark.parametrize("platform", OTHERS)
def test_lock_and_build_refuse_a_base_for_another_platform(pushing: Project, registry_host: str, platform: str) -> None:
    """Exit 3 from both verbs, naming both platforms; a lock with that base is what an older imgtool wrote."""
    tag = f"3.11-{platform.replace('/', '-')}"
    put_base(registry_host, tag, platform)
    path = pushing.spec(f"{SPEC}base: python:{tag}\n", lock=False)
    (pushing.folder / "image.lock").unlink()
    ended = pushing.run("lock", path)
    assert ended.code == 3, ended.err
    assert f"is an image for {platform}, but the spec's platform is linux/amd64" in ended.err
    assert not (pushing.folder / "image.lock").exists()
    pushing.lock(base=base_image(platform).digest)
    ended = pushing.run("build", "--push", "--engine", "direct", "--locked", path)
    assert ended.code == 3, ended.err
    assert f"is an image for {platform}, but the spec's platform is linux/amd64" in ended.err
