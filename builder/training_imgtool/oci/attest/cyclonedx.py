"""Writes software bills of materials in CycloneDX 1.5 JSON: the bill of a lock's variant, and parts of other bills.

The format is small, so imgtool uses no library for it: https://cyclonedx.org/docs/1.5/json. A bill contains neither a
serial number nor a date, so that equal images have equal bills. Package URLs follow the purl specification.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from training_imgtool.base.reference import parse_reference
from training_imgtool.model.lock import DebianPackage, LockedVariant, Wheel
from training_imgtool.model.recipe.recipe import Recipe
from training_imgtool.model.requirements import normalise_name

MEDIA_TYPE = "application/vnd.cyclonedx+json"
_SUPPLIERS = {"debian": "Debian", "ubuntu": "Ubuntu"}  # of Debian packages, by the ID of os-release
SAFE = ".-_~"  # characters that package URLs leave as they are


def describe_variant(
    name: str, recipe: Recipe, system_packages: tuple[str, ...], debian: Iterable[DebianPackage]
) -> dict[str, Any]:
    """Lists an image's components without the code: the base by digest, and the lock's wheels and Debian packages.

    Several roles and several versions of the code share this bill, because the bill depends only on the lock and the
    system packages. The bill declares that it is incomplete, because it omits the content of the base, and the packages
    that apt chose when an engine installed them.

    Args:
        name: the spec's name.
        recipe: the image's recipe.
        system_packages: the Debian packages that the spec and the lock name.
        debian: the packages of the lock that the image has; none if an engine installed what apt chose.
    """
    locked = recipe.locked
    distribution = read_distribution(locked.variant.os)
    packages = [
        make_debian_component(item.name, item.version, item.architecture, distribution, sha256=item.sha256)
        for item in debian
    ]
    inside = [make_base_component(locked), *map(make_wheel_component, locked.wheels), *packages]
    image: dict[str, Any] = {
        "type": "container",
        "bom-ref": f"variant:{locked.variant.name}",
        "name": f"{name}-{locked.variant.name}",
        "properties": list_properties(
            {
                "dev.imgtool.platform": recipe.platform,
                "dev.imgtool.python": locked.variant.python,
                "dev.imgtool.system-packages": " ".join(system_packages),
                "dev.imgtool.left-out": " ".join(recipe.exclude),
            }
        ),
    }
    refs = sorted(component["bom-ref"] for component in inside)
    by_engine = [image["bom-ref"]] if system_packages and not packages else []
    open_ended = {"aggregate": "incomplete", "assemblies": [f"base:{locked.base_digest}", *by_engine]}
    return make_bill(image, inside, {image["bom-ref"]: refs}) | {"compositions": [open_ended]}


def make_bill(
    subject: Mapping[str, Any],
    components: Iterable[Mapping[str, Any]],
    depends: Mapping[str, Iterable[str]],
) -> dict[str, Any]:
    """Wraps components as a document of CycloneDX.

    Args:
        subject: the component that the bill is about.
        components: the components; of two with one `bom-ref`, the bill has one.
        depends: for each `bom-ref`, the `bom-ref`s of its dependencies.
    """
    by_ref = {component["bom-ref"]: component for component in components}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "imgtool"}]},
            "component": dict(subject),
        },
        "components": [by_ref[ref] for ref in sorted(by_ref)],
        "dependencies": [{"ref": ref, "dependsOn": list(refs)} for ref, refs in depends.items()],
    }


def make_wheel_component(wheel: Wheel) -> dict[str, Any]:
    """Makes a wheel's component."""
    name = normalise_name(wheel.name)
    return {
        "type": "library",
        "bom-ref": f"wheel:{wheel.file}:{wheel.sha256[:16]}",
        "name": name,
        "version": wheel.version,
        "purl": f"pkg:pypi/{quote(name, safe=SAFE)}@{quote(wheel.version, safe=SAFE)}",
        "hashes": [{"alg": "SHA-256", "content": wheel.sha256}],
        "properties": list_properties({"dev.imgtool.file": wheel.file}),
    }


def read_distribution(os: str | None) -> tuple[str, str] | None:
    """Splits a distribution's name in a plan, such as debian12, into ID and VERSION_ID; None for another text."""
    match = re.fullmatch(r"([a-z]+)([0-9.]+)", os or "")
    return (match[1], match[2]) if match else None


def make_debian_component(
    name: str, version: str, architecture: str, distribution: tuple[str, str] | None, *, sha256: str = ""
) -> dict[str, Any]:
    """Makes a Debian package's component, without a package URL if the distribution is not known."""
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"deb:{name}:{architecture}:{version}",
        "name": name,
        "version": version,
    }
    if distribution:
        vendor, distro = distribution[0], "-".join(filter(None, distribution))
        package = f"{quote(vendor, safe=SAFE)}/{quote(name, safe=SAFE)}@{quote(version, safe=SAFE)}"
        qualifiers = f"arch={quote(architecture, safe=SAFE)}&distro={quote(distro, safe=SAFE)}"
        component["purl"] = f"pkg:deb/{package}?{qualifiers}"
        if vendor in _SUPPLIERS:
            component["supplier"] = {"name": _SUPPLIERS[vendor]}
    if sha256:
        component["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    return component


def list_properties(values: Mapping[str, str]) -> list[dict[str, str]]:
    """Makes the list of properties that CycloneDX expects, without empty values."""
    return [{"name": name, "value": value} for name, value in sorted(values.items()) if value]


def make_base_component(locked: LockedVariant) -> dict[str, Any]:
    """Makes the component of the base image of a variant."""
    repository = parse_reference(locked.variant.base).repository
    digest = quote(locked.base_digest, safe=SAFE)
    where = quote(str(repository), safe=SAFE + "/")
    name = repository.path.rpartition("/")[2]
    return {
        "type": "container",
        "bom-ref": f"base:{locked.base_digest}",
        "name": locked.variant.base,
        "version": locked.base_digest,
        "purl": f"pkg:oci/{quote(name, safe=SAFE)}@{digest}?repository_url={where}",
    }
