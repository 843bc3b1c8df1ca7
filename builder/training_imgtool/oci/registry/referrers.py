"""Reads and writes referrers: manifests that name another manifest as `subject` (distribution specification 1.1).

A registry with the referrers API lists a manifest's referrers. For other registries, the specification defines a tag in
the subject's repository, `sha256-HEX`, under which clients store the list as an index. If two clients write the list at
the same moment, an entry may be lost. A registry's clean-up of untagged manifests deletes the manifests in such a list,
but not the list.
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
    """Makes an OCI manifest that refers to `subject`; `layers` are descriptors as JSON objects."""
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
    """Puts manifests that refer to `subject` into its repository, and adds them to the subject's list of referrers.

    Args:
        registry: the client.
        subject: the manifest to which they refer.
        bodies: the manifests.
        statement: a further manifest for the tag where cosign keeps attestations, unless that tag exists.
        once: makes a further manifest, unless that tag exists.
        is_first: whether the subject is new in the repository and has no referrers yet, which saves reading the list.

    Raises what `Registry.put_manifest` raises, and RegistryRefusedError if the list's tag names something else.
    """
    names: dict[bytes, Tag | Digest] = {body: subject.repository.digest(sha256_digest(body)) for body in bodies}
    if statement:
        tag = statement_tag(subject)
        is_free = registry.head(tag) is None
        is_first = is_first and is_free  # in a registry that mounts no blobs, an old image looks new
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
    """Returns a manifest's referrers in the registry's list and in the tag's list, because programs read either.

    Raises what `Registry.find_manifest` raises.
    """
    lists = (registry.find_referrers(subject), registry.find_manifest(_list_tag(subject)))
    return [entry for index in lists if index is not None for entry, _ in index.entries]


def statement_tag(subject: Digest) -> Tag:
    """Returns the tag where cosign 2 keeps the attestations of an image."""
    return subject.repository.tag(f"{_list_tag(subject).name}.att")


def sbom_tag(subject: Digest) -> Tag:
    """Returns the tag where `cosign attach sbom` puts a bill of materials, which imgtool does not write."""
    return subject.repository.tag(f"{_list_tag(subject).name}.sbom")


def describe_referrer(body: bytes) -> dict[str, Any]:
    """Makes a manifest's entry for the list of referrers, with the artifact type that the specification requires."""
    document = json.loads(body)
    descriptor = Descriptor(OCI_MANIFEST, sha256_digest(body), len(body))
    return descriptor.document() | {"artifactType": document["artifactType"]}


def _put_list(registry: Registry, subject: Digest, entries: tuple[Mapping[str, Any], ...]) -> None:
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
    registry.put_manifest(_list_tag(subject), OCI_INDEX, json.dumps(document, sort_keys=True).encode())


def _find_present(registry: Registry, subject: Digest, entries: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """Returns the entries of a list without those whose manifests a clean-up of the registry has deleted."""
    return [
        entry for entry in entries if registry.head(subject.repository.digest(str(entry.get("digest")))) is not None
    ]


def _read_tagged(registry: Registry, subject: Digest) -> tuple[dict[str, Any], ...]:
    index = registry.find_manifest(_list_tag(subject))
    if index is not None and not index.is_index:
        raise RegistryRefusedError(f"{_list_tag(subject)} should name a list of referrers, but names something else")
    return () if index is None else _entries(index)


def _entries(index: Manifest) -> tuple[dict[str, Any], ...]:
    """Reads a list of referrers, each manifest once, because another program's list may repeat an entry many times."""
    return tuple({descriptor.digest: dict(entry) for entry, descriptor in index.entries}.values())


def _list_tag(subject: Digest) -> Tag:
    return subject.repository.tag(subject.digest.replace(":", "-"))
