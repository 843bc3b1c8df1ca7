"""Referrers: manifests that name another one as their `subject` (distribution specification 1.1).

A registry with the referrers API lists them itself. For any other, the specification has a tag of the subject's
repository, `sha256-HEX`, under which clients keep the list as an index; two clients that write it at the same moment
may lose an entry. A clean-up of untagged manifests takes what such a list names, and leaves the list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from training_imgtool.base.errors import RegistryRefusedError
from training_imgtool.base.reference import Digest, Tag
from training_imgtool.base.threads import run_all
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.failures import BlobUnknownError
from training_imgtool.oci.registry.manifests import (
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    sha256_digest,
)


def referrer_manifest(
    subject: Descriptor,
    artifact_type: str,
    layers: tuple[Mapping[str, Any], ...],
    *,
    config: Descriptor,
) -> bytes:
    """Writes an OCI manifest that refers to `subject`; `layers` are descriptors as documents."""
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": artifact_type,
        "config": config.document(),
        "layers": [dict(layer) for layer in layers],
        "subject": subject.document(),
    }
    return json.dumps(document, sort_keys=True).encode()


def attach(
    registry: Registry,
    subject: Digest,
    *bodies: bytes,
    statement: bytes = b"",
    once: Callable[[], bytes] | None = None,
    is_first: bool = False,
) -> None:
    """Puts manifests that refer to `subject` beside it, and sees that they are listed.

    Args:
        registry: the client.
        subject: what they refer to.
        bodies: the manifests.
        statement: one more, which goes under the tag where cosign keeps attestations, unless something is there.
        once: makes one more, unless something is under that tag already.
        is_first: the subject is new in the repository, so that nobody has referred to it; saves reading the list.

    Raises what `Registry.put_manifest` raises, and RegistryRefusedError if something else has the list's tag.
    """
    names: dict[bytes, Tag | Digest] = {body: subject.repository.digest(sha256_digest(body)) for body in bodies}
    if statement:
        tag = statement_tag(subject)
        is_free = registry.head(tag) is None
        is_first = is_first and is_free  # a registry that mounts nothing lets an old image look new
        if is_free and once:
            body = once()
            names[body] = subject.repository.digest(sha256_digest(body))
        names[statement] = tag if is_free else subject.repository.digest(sha256_digest(statement))
    listed = run_all({body: partial(registry.put_referrer, name, body) for body, name in names.items()})
    if all(listed.values()):
        return
    old = () if is_first else _read_tagged(registry, subject)
    new = tuple(map(describe_referrer, names))
    others = tuple(entry for entry in old if entry.get("digest") not in {entry["digest"] for entry in new})
    if all(entry in old for entry in new):
        return
    try:
        _put_list(registry, subject, (*others, *new))
    except BlobUnknownError:
        _put_list(registry, subject, (*_find_present(registry, subject, others), *new))


def read_referrers(registry: Registry, subject: Digest) -> list[Mapping[str, Any]]:
    """Reads what is listed as referring to a manifest, by the registry or under the tag; programs read either.

    Raises what `Registry.find_manifest` raises.
    """
    lists = (registry.find_referrers(subject), registry.find_manifest(_list_tag(subject)))
    return [entry for index in lists if index is not None for entry, _ in index.entries]


def statement_tag(subject: Digest) -> Tag:
    """Returns the tag where cosign 2 keeps the attestations of an image."""
    return subject.repository.tag(f"{_list_tag(subject).name}.att")


def sbom_tag(subject: Digest) -> Tag:
    """Returns the tag where `cosign attach sbom` puts a bill of materials; imgtool puts none there."""
    return subject.repository.tag(f"{_list_tag(subject).name}.sbom")


def describe_referrer(body: bytes) -> dict[str, Any]:
    """Makes a manifest's entry in a list, with its artifact type as the specification wants."""
    document = json.loads(body)
    descriptor = Descriptor(OCI_MANIFEST, sha256_digest(body), len(body))
    return descriptor.document() | {"artifactType": document["artifactType"]}


def _put_list(registry: Registry, subject: Digest, entries: tuple[Mapping[str, Any], ...]) -> None:
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
    registry.put_manifest(_list_tag(subject), OCI_INDEX, json.dumps(document, sort_keys=True).encode())


def _find_present(registry: Registry, subject: Digest, entries: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """Drops the entries of a list whose manifests a clean-up of the registry took."""
    return [
        entry for entry in entries if registry.head(subject.repository.digest(str(entry.get("digest")))) is not None
    ]


def _read_tagged(registry: Registry, subject: Digest) -> tuple[dict[str, Any], ...]:
    index = registry.find_manifest(_list_tag(subject))
    if index is not None and not index.is_index:
        raise RegistryRefusedError(f"{_list_tag(subject)} is the tag of a list of referrers, and has something else")
    return () if index is None else _entries(index)


def _entries(index: Manifest) -> tuple[dict[str, Any], ...]:
    """Reads the entries of a list, each manifest once: whoever can write it can repeat one a thousand times."""
    return tuple({descriptor.digest: dict(entry) for entry, descriptor in index.entries}.values())


def _list_tag(subject: Digest) -> Tag:
    return subject.repository.tag(subject.digest.replace(":", "-"))
