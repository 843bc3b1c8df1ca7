"""Checks for AI Platform and Vertex AI: KMS keys, buckets, projects, and images that the service can pull."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.jobs.model import Finding, Path, Severity
from training_imgtool.jobs.rules.images import parse_image

GCLOUD = "gcloud 528"
_KMS = re.compile(r"projects/[^/]+/locations/(?P<location>[^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+\Z")
_STORAGE = re.compile(r"gs://(?P<bucket>[^\s/?#]+)(?:/[^\r\n]*)?\Z")
_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?\Z")
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z0-9][a-z0-9-]*\Z")
_AR_HOST = re.compile(r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev\Z")
LOOPBACK = re.compile(r"(?:127\.[0-9.]+|localhost|\[::1\])(?::[0-9]+)?\Z")
_GCR_LOCATIONS = {"gcr.io": "us", "us.gcr.io": "us", "eu.gcr.io": "europe", "asia.gcr.io": "asia"}
_MULTI_REGIONS = {"us": ("us-", "northamerica-"), "europe": ("europe-",), "asia": ("asia-",)}


def kms_findings(value: Any, path: Path, region: str | None = None) -> Iterator[Finding]:
    """Checks the full name of a Cloud KMS key, and that it is in the job's region if the region is known."""
    if not isinstance(value, str):
        return
    match = _KMS.match(value)
    if match is None:
        form = "projects/P/locations/R/keyRings/K/cryptoKeys/C"
        yield Finding(path=path, message=f"{value!r} is not a Cloud KMS key: expected {form}")
    elif region is not None and match["location"] != region:
        message = f"the key is in {match['location']}, the job runs in {region}: Vertex AI needs a key there"
        yield Finding(path=path, message=message)


def bucket_findings(value: Any, path: Path) -> Iterator[Finding]:
    """Checks a path in Cloud Storage. A bucket name that cannot exist gives only a warning."""
    if not isinstance(value, str):
        return
    match = _STORAGE.match(value)
    if match is None:
        yield Finding(path=path, message=f"{value!r} is not a path in Cloud Storage: expected gs://BUCKET/PATH")
        return
    bucket = match["bucket"]
    if not _BUCKET.match(bucket) or not 3 <= len(bucket) <= 222:
        message = (
            f"{bucket!r} cannot be a bucket's name: expected 3 to 63 of a-z 0-9 . _ -, a letter or digit at each end"
        )
        yield Finding(path=path, message=message, severity=Severity.WARNING)


def project_findings(value: Any, path: Path) -> Iterator[Finding]:
    """Checks a project's ID or number."""
    if isinstance(value, str) and not _PROJECT.match(value):
        yield Finding(path=path, message=f"{value!r} is not a project: expected its ID, such as my-project")


def image_findings(value: Any, path: Path, region: str | None, agent: str) -> Iterator[Finding]:
    """Checks that an image has a digest, and that the service can pull it in the job's region."""
    reference, findings = parse_image(value, path)
    yield from findings
    if reference is not None:
        yield from _registry_findings(reference.repository.registry, path, region, agent)


def _registry_findings(registry: str, path: Path, region: str | None, agent: str) -> Iterator[Finding]:
    match = _AR_HOST.match(registry)
    location = match["location"] if match else _GCR_LOCATIONS.get(registry)
    if location is None:
        if registry != "docker.io":
            away = f"is no Artifact Registry host: {agent} can pull only public images there"
            here = "is this machine's own: no service can pull from it"
            message = f"{registry} {here if LOOPBACK.match(registry) else away}"
            yield Finding(path=path, message=message, severity=Severity.WARNING)
        return
    if region is None or location == region:
        return
    inside = _MULTI_REGIONS.get(location)
    if inside is None or not region.startswith(inside):
        yield Finding(
            path=path,
            message=f"the image is in {location}, the job runs in {region}: each start pulls across regions",
            severity=Severity.WARNING,
        )


def pull_rights_findings(images: Mapping[Path, str], project: str | None, agent: str) -> Iterator[Finding]:
    """Yields a hint for each image that is in a project other than the job's."""
    for path, image in images.items():
        host, _, rest = image.partition("/")
        owner = rest.partition("/")[0]
        if project and _AR_HOST.match(host) and owner and owner != project:
            yield Finding(
                path=path,
                message=f"the job's project needs the right to pull from {owner}: "
                f"give {agent} roles/artifactregistry.reader there",
                severity=Severity.HINT,
            )
            return
