"""Names of other resources in a CustomJobSpec: Tensorboard, persistent resource, address ranges, network attachment.

Source: the aiplatform.v1 discovery document, revision 20261106.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.jobs.model import Finding, Path, Severity

_RESOURCE = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_ATTACHMENT = re.compile(rf"(?:projects/[^/]+/regions/(?P<region>[^/]+)/networkAttachments/)?{_RESOURCE.pattern}")
_STORE = r"projects/[^/]+/locations/[^/]+/metadataStores/[^/]+/contexts/[^/]+"
_STORE_FORM = "projects/P/locations/R/metadataStores/S/contexts/NAME"
_FORMS = {
    "tensorboard": (
        re.compile(r"projects/[^/]+/locations/(?P<location>[^/]+)/tensorboards/[^/]+"),
        "projects/P/locations/R/tensorboards/ID",
    ),
    "persistentResourceId": (_RESOURCE, "63 at most of a-z, 0-9 and -, a letter first"),
    "experiment": (re.compile(_STORE), _STORE_FORM),
    "experimentRun": (re.compile(_STORE), _STORE_FORM),
}


def resource_findings(spec: Mapping[str, Any], path: Path, region: str | None) -> Iterator[Finding]:
    """Names that are not of their form, and resources of another region than the job's."""
    for key, (pattern, form) in _FORMS.items():
        text = spec.get(key)
        match = pattern.fullmatch(text) if isinstance(text, str) else None
        if isinstance(text, str) and match is None:
            yield Finding(path=(*path, key), message=f"{text!r}: expected {form}")
        elif key == "tensorboard" and match and region and match["location"] != region:
            message = f"the Tensorboard lies in {match['location']}, the job runs in {region}"
            yield Finding(path=(*path, key), message=message, severity=Severity.WARNING)
    if "tensorboard" in spec and "serviceAccount" not in spec:
        message = "uploads need a service account that may write there: expected serviceAccount"
        yield Finding(path=(*path, "tensorboard"), message=message, severity=Severity.WARNING)
    ranges = spec.get("reservedIpRanges")
    for index, name in enumerate(ranges if isinstance(ranges, list) else []):
        if isinstance(name, str) and not _RESOURCE.fullmatch(name):
            message = f"{name!r} is not an address range's name: expected a-z, 0-9 and -, a letter first"
            yield Finding(path=(*path, "reservedIpRanges", index), message=message)
    yield from _private_connection(spec, path, region)


def _private_connection(spec: Mapping[str, Any], path: Path, region: str | None) -> Iterator[Finding]:
    config = spec.get("pscInterfaceConfig")
    if not isinstance(config, dict):
        return
    where: Path = (*path, "pscInterfaceConfig")
    attachment = config.get("networkAttachment")
    match = _ATTACHMENT.fullmatch(attachment) if isinstance(attachment, str) else None
    if match and match["region"] and region and match["region"] != region:
        message = f"the network attachment lies in {match['region']}, the job runs in {region}"
        yield Finding(path=(*where, "networkAttachment"), message=message, severity=Severity.WARNING)
    if isinstance(attachment, str) and match is None:
        form = "its name, or projects/P/regions/R/networkAttachments/NAME"
        message = f"{attachment!r} is not a network attachment: expected {form}"
        yield Finding(path=(*where, "networkAttachment"), message=message)
    if "network" in spec:
        message = "goes without network: a job is peered or has a Private Service Connect interface"
        yield Finding(path=where, message=message, severity=Severity.WARNING)
    peerings = config.get("dnsPeeringConfigs")
    for index, peering in enumerate(peerings if isinstance(peerings, list) else []):
        domain = peering.get("domain") if isinstance(peering, dict) else None
        if isinstance(domain, str) and not domain.endswith("."):
            message = f"{domain!r}: a DNS zone ends with a dot"
            yield Finding(path=(*where, "dnsPeeringConfigs", index, "domain"), message=message)
