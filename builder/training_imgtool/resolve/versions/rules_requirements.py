"""Rules that find conflicts of the user's requirements with the framework, its constraints, or the base's CUDA."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from training_imgtool.model.lock import Variant
from training_imgtool.model.requirements import FIELD, Named, find_unlockable_lines
from training_imgtool.model.spec import Accelerator
from training_imgtool.resolve.versions.markers import marker_environment
from training_imgtool.resolve.versions.matrix import Minor, Release
from training_imgtool.resolve.versions.rules import Finding

_CUDA_WHEEL = re.compile(r"nvidia-[a-z0-9-]+-cu\d+\Z")


def check_requirements(
    named: tuple[Named, ...], variant: Variant, minor: Minor, release: Release, *, platform: str, cuda_base: bool
) -> list[Finding]:
    """Collects all findings about the user's requirements for one variant.

    Args:
        named: the requirements in the user's files.
        variant: the variant.
        minor: the variant's row of the matrix.
        release: the variant's release.
        platform: the images' platform.
        cuda_base: whether CUDA comes from the base.
    """
    findings: list[Finding] = []
    framework, title = variant.framework, f"{variant.framework.title} {release.version}"
    environment = marker_environment(variant.python, platform)
    constraints = _merge(variant.constraints)
    requires = _merge(tuple(f"{name}{spec}" for name, spec in minor.requires.items()), environment)
    for item in named:
        requirement = item.requirement
        if requirement.marker and not requirement.marker.evaluate(environment):
            continue
        name = canonicalize_name(requirement.name)
        if name in framework.packages:
            findings += _check_framework(item, name, variant, cuda_base=cuda_base)
        elif re.fullmatch(framework.others, name):
            message = f"{item.place}: {name} is another {framework.title} than the spec's {variant.release}"
            findings.append(Finding(FIELD, message, f"leave the line out: one image has one {framework.title}"))
        elif name in constraints and not _agree(requirement.specifier, constraints[name]):
            message = f"{item.place}: {requirement} fights {name}{constraints[name]}"
            hint = f"without {name}{constraints[name]} {title} does not install or import"
            findings.append(Finding(FIELD, message, hint))
        elif (
            release.version == minor.recommended
            and name in requires
            and not _agree(requirement.specifier, requires[name])
        ):
            message = f"{item.place}: {requirement} fights {title}, which needs {name}{requires[name]}"
            findings.append(Finding(FIELD, message, f"{name}{requires[name]}, or another {framework.title}"))
        elif cuda_base and _CUDA_WHEEL.fullmatch(name):
            message = f"{item.place}: {name} brings a second CUDA; the base {variant.base} has it already"
            findings.append(Finding(FIELD, message, "leave it out, or cuda_from: wheels", warning=True))
    return findings


def check_lines(texts: tuple[tuple[str, str], ...]) -> list[Finding]:
    """Finds every line that imgtool cannot lock: a lock names wheels by hash, and contains no index options.

    Args:
        texts: the requirements file and those it includes, by name.
    """
    return [Finding(FIELD, f"{where}: {reason}", cure) for where, reason, cure in find_unlockable_lines(texts)]


def _check_framework(item: Named, name: str, variant: Variant, *, cuda_base: bool) -> list[Finding]:
    requirement, framework = item.requirement, variant.framework
    hint = f"leave the line out: imgtool installs {variant.package} {variant.release} for {', '.join(variant.roles)}"
    last = framework.last_releases.get(name)
    if last and _only_after(requirement.specifier, Version(last)):
        message = f"{item.place}: {requirement}: the last {name} with a wheel is {last}"
        return [Finding(FIELD, message, hint)]
    own = f"{variant.release}+{variant.build}" if variant.build else variant.release
    if not any(requirement.specifier.contains(version, prereleases=True) for version in (variant.release, own)):
        message = f"{item.place}: {requirement} is not the spec's {framework.title} {variant.release}"
        return [Finding(FIELD, message, hint)]
    has_cuda = {canonicalize_name(extra) for extra in requirement.extras} & {*framework.cuda_extras}
    if has_cuda and variant.accelerator is not Accelerator.GPU:
        message = f"{item.place}: {requirement}: no CUDA for {', '.join(variant.roles)}, which have no GPU"
        cure = f"leave {', '.join(has_cuda)} out; cuda_from: wheels brings it to GPUs"
        return [Finding(FIELD, message, cure, warning=True)]
    if has_cuda and cuda_base:
        message = f"{item.place}: {requirement} brings a second CUDA; the base {variant.base} has it already"
        return [Finding(FIELD, message, "leave the line out, or cuda_from: wheels", warning=True)]
    if name not in {variant.package, framework.packages[0]}:  # each package may be the first one
        message = f"{item.place}: {requirement} is not installed for {', '.join(variant.roles)}"
        return [Finding(FIELD, message, hint, warning=True)]
    return []


def _only_after(specifier: SpecifierSet, last: Version) -> bool:
    lows = [part.version.removesuffix(".*") for part in specifier if part.operator in {"==", "===", ">=", "~=", ">"}]
    try:
        return any(Version(low) > last for low in lows)
    except ValueError:
        return False


def _merge(requirements: tuple[str, ...], environment: Mapping[str, str] | None = None) -> dict[str, SpecifierSet]:
    specifiers: dict[str, SpecifierSet] = {}
    for text in requirements:
        for alternative in text.split(" || "):
            name = re.split(r"[^\w.-]", text, maxsplit=1)[0]
            whole = alternative if alternative.startswith(name) else f"{name}{alternative}"
            requirement = Requirement(whole)
            marker: Marker | None = requirement.marker
            if marker is not None and environment is not None and not marker.evaluate(dict(environment)):
                continue
            key = canonicalize_name(requirement.name)
            specifiers[key] = specifiers.get(key, SpecifierSet()) & requirement.specifier
    return specifiers


def _agree(wanted: SpecifierSet, allowed: SpecifierSet) -> bool:
    """Returns whether some version satisfies both; tries the versions that they name, and versions close to these."""
    tried = set()
    for specifier in (*wanted, *allowed):
        text = specifier.version.removesuffix(".*")
        try:
            version = Version(text)
        except ValueError:
            return True
        parts = list(version.release)
        tried |= {version, Version(".".join(map(str, [*parts, 1])))}
        tried.add(Version(".".join(map(str, [*parts[:-1], parts[-1] + 1]))))
        before = _before(parts)
        if before:
            tried.add(before)
    both = wanted & allowed
    return not tried or any(both.contains(version, prereleases=True) for version in tried)


def _before(parts: list[int]) -> Version | None:
    """Returns a version just below `parts`, such as 1.9999 for 2.0."""
    for index in range(len(parts) - 1, -1, -1):
        if parts[index] > 0:
            return Version(".".join(map(str, [*parts[:index], parts[index] - 1, 9999])))
    return None
