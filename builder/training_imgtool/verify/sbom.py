"""A software bill of materials: the wheels of the lock and the Debian packages of the images, as CycloneDX 1.5 JSON.

Written by hand, since it is small: https://cyclonedx.org/docs/1.5/json. It has neither a serial number nor a date, so
that the same images give the same bytes. Package URLs are those of the purl specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.utils import canonicalize_name

from training_imgtool import __version__
from training_imgtool.core.atomic_files import write_atomic
from training_imgtool.plan import Wheel
from training_imgtool.verify.report import ImageReport

_SAFE = ".-_~"


def write_sbom(path: Path, name: str, reports: tuple[ImageReport, ...]) -> tuple[str, ...]:
    """Writes the document to a file at once; returns what should be said of it. Raises LocalFileError."""
    document = sbom(name, reports)
    write_atomic(path, (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode())
    return tuple(
        f"{path}: without the Debian packages of {report.role}: the layer with their list was not read"
        for report in reports
        if report.debian is None
    )


def sbom(name: str, reports: tuple[ImageReport, ...]) -> dict[str, Any]:
    """The document: one component per image, wheel and Debian package, and which image has which."""
    components: dict[str, dict[str, Any]] = {}
    depends: dict[str, list[str]] = {}
    for report in reports:
        inside = [_wheel(wheel) for wheel in report.source.plan.locked.wheels]
        inside += _debian(report) if report.debian is not None else []
        image = _image(name, report)
        for component in (image, *inside):
            components[component["bom-ref"]] = component
        depends[image["bom-ref"]] = sorted({component["bom-ref"] for component in inside})
    images = sorted(depends)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "imgtool", "version": __version__}]},
            "component": {"type": "application", "bom-ref": f"spec:{name}", "name": name},
        },
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [
            {"ref": f"spec:{name}", "dependsOn": images},
            *({"ref": ref, "dependsOn": depends[ref]} for ref in images),
        ],
    }


def _image(name: str, report: ImageReport) -> dict[str, Any]:
    locked = report.source.plan.locked
    seen = "read" if report.debian is not None else "not looked at"
    return {
        "type": "container",
        "bom-ref": f"image:{report.role}",
        "name": f"{name}-{report.role}",
        "version": report.image.rpartition("@")[2],
        "properties": _properties(
            {
                "dev.imgtool.key": report.source.key,
                "dev.imgtool.base": f"{locked.variant.base}@{locked.base_digest}",
                "dev.imgtool.debian-packages": seen,
                "dev.imgtool.reference": report.image,
            }
        ),
    }


def _wheel(wheel: Wheel) -> dict[str, Any]:
    name = canonicalize_name(wheel.name)
    return {
        "type": "library",
        "bom-ref": f"wheel:{wheel.file}:{wheel.sha256[:16]}",
        "name": name,
        "version": wheel.version,
        "purl": f"pkg:pypi/{quote(name, safe=_SAFE)}@{quote(wheel.version, safe=_SAFE)}",
        "hashes": [{"alg": "SHA-256", "content": wheel.sha256}],
        "properties": _properties({"dev.imgtool.file": wheel.file}),
    }


def _debian(report: ImageReport) -> list[dict[str, Any]]:
    distribution, version = _distribution(report)
    return [
        {
            "type": "library",
            "bom-ref": f"deb:{name}:{architecture}:{release}",
            "name": name,
            "version": release,
            "purl": (
                f"pkg:deb/{distribution}/{quote(name, safe=_SAFE)}@{quote(release, safe=_SAFE)}"
                f"?arch={quote(architecture, safe=_SAFE)}&distro={quote(f'{distribution}-{version}', safe=_SAFE)}"
            ),
        }
        for name, architecture, release in sorted(set(_packages(report.debian or "")))
    ]


def _packages(status: str) -> Iterator[tuple[str, str, str]]:
    """Name, architecture and version of what is installed, out of dpkg's status file (deb-control(5))."""
    for paragraph in status.split("\n\n"):
        fields = Parser().parsestr(paragraph.strip() + "\n", headersonly=True)
        state = str(fields.get("Status") or "install ok installed").split()  # status.d of distroless images has none
        if fields.get("Package") and fields.get("Version") and state[-1] == "installed":
            yield str(fields["Package"]), str(fields.get("Architecture") or "all"), str(fields["Version"])


def _distribution(report: ImageReport) -> tuple[str, str]:
    """ID and VERSION_ID of os-release, else what the plan says the base is, such as ubuntu22.04."""
    pairs = (line.partition("=") for line in report.release.splitlines())
    fields = {key: value.strip("\"'") for key, _, value in pairs}
    planned = re.match(r"([a-z]+)([0-9.]*)", report.source.plan.locked.variant.os or "") or ["", "debian", ""]
    return fields.get("ID") or planned[1], fields.get("VERSION_ID") or planned[2]


def _properties(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in sorted(values.items())]
