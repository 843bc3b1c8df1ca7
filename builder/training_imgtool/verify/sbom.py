"""`verify --sbom`: the wheels of the lock and the Debian packages of the images, as CycloneDX 1.5 JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from email.parser import Parser
from pathlib import Path
from typing import Any

from training_imgtool.attest.cyclonedx import (
    list_properties,
    make_bill,
    make_debian_component,
    make_wheel_component,
    read_distribution,
)
from training_imgtool.core.atomic_files import write_atomic
from training_imgtool.verify.report import ImageReport


def write_sbom(path: Path, name: str, reports: tuple[ImageReport, ...]) -> tuple[str, ...]:
    """Writes the document to a file at once; returns what should be said of it. Raises LocalFileError."""
    document = make_sbom(name, reports)
    write_atomic(path, (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode())
    return tuple(
        f"{path}: without the Debian packages of {report.role}: the layer with their list was not read"
        for report in reports
        if report.debian is None
    )


def add_packages(bill: Mapping[str, Any], report: ImageReport) -> Mapping[str, Any]:
    """Returns the bill of a variant with every Debian package that an image has, those of its base too.

    The same bill where nothing read their list.
    """
    if not report.debian:
        return bill
    of_lock = {component["bom-ref"]: component for component in bill["components"]}
    by_ref = {component["bom-ref"]: component for component in _list_debian(report)} | of_lock
    refs = sorted(by_ref)
    image = bill["metadata"]["component"]["bom-ref"]
    return {**bill, "components": [by_ref[ref] for ref in refs], "dependencies": [{"ref": image, "dependsOn": refs}]}


def make_sbom(name: str, reports: tuple[ImageReport, ...]) -> dict[str, Any]:
    """Makes the document: one component per image, wheel and Debian package, and which image has which."""
    components: list[dict[str, Any]] = []
    depends: dict[str, list[str]] = {}
    for report in reports:
        inside = [make_wheel_component(wheel) for wheel in report.source.plan.locked.wheels]
        inside += _list_debian(report) if report.debian is not None else []
        image = _make_image(name, report)
        components += [image, *inside]
        depends[image["bom-ref"]] = sorted({component["bom-ref"] for component in inside})
    subject = {"type": "application", "bom-ref": f"spec:{name}", "name": name}
    images = sorted(depends)
    return make_bill(subject, components, {f"spec:{name}": images, **{ref: depends[ref] for ref in images}})


def _make_image(name: str, report: ImageReport) -> dict[str, Any]:
    locked = report.source.plan.locked
    state = "read" if report.debian is not None else "not looked at"
    return {
        "type": "container",
        "bom-ref": f"image:{report.role}",
        "name": f"{name}-{report.role}",
        "version": report.image.rpartition("@")[2],
        "properties": list_properties(
            {
                "dev.imgtool.key": report.source.key,
                "dev.imgtool.base": f"{locked.variant.base}@{locked.base_digest}",
                "dev.imgtool.debian-packages": state,
                "dev.imgtool.reference": report.image,
            }
        ),
    }


def _list_debian(report: ImageReport) -> list[dict[str, Any]]:
    distribution = _read_distribution(report)
    return [
        make_debian_component(name, release, architecture, distribution)
        for name, architecture, release in sorted(set(parse_packages(report.debian or "")))
    ]


def parse_packages(status: str) -> Iterator[tuple[str, str, str]]:
    """Yields name, architecture and version of what is installed, out of dpkg's status file (deb-control(5))."""
    for paragraph in status.split("\n\n"):
        fields = Parser().parsestr(paragraph.strip() + "\n", headersonly=True)
        state = str(fields.get("Status") or "install ok installed").split()  # status.d of distroless images has none
        if fields.get("Package") and fields.get("Version") and state[-1] == "installed":
            yield str(fields["Package"]), str(fields.get("Architecture") or "all"), str(fields["Version"])


def _read_distribution(report: ImageReport) -> tuple[str, str] | None:
    """Reads ID and VERSION_ID of os-release, else what the plan says the base is."""
    pairs = (line.partition("=") for line in report.release.splitlines())
    fields = {key: value.strip("\"'") for key, _, value in pairs}
    if fields.get("ID"):
        return fields["ID"], fields.get("VERSION_ID", "")
    return read_distribution(report.source.plan.locked.variant.os)
