"""Compares what is attached to an image, a bill of materials and the provenance, with its lock and key.

What is attached is unsigned, and anyone who can push can replace it. So `verify` reads each one that carries imgtool's
annotation by its digest and compares it with what this machine says of the same image. Another version of imgtool may
say more or less: only what both say can differ. What the key does not cover can differ in an image that is right: the
spec's name and comments, parts of the lock for other roles, the version of imgtool. Who signed the image is cosign's
answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from training_imgtool.attest import cyclonedx, provenance
from training_imgtool.attest.provenance import encode, make_statement
from training_imgtool.core.errors import RegistryRefusedError, VerificationError
from training_imgtool.core.reference import Digest
from training_imgtool.core.sanitize import join_lines
from training_imgtool.core.settings import Settings
from training_imgtool.pipeline.attach import INPUTS, PROVENANCE, describe, read_statement, read_trace
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.registry.referrers import Referrer, list_referrers
from training_imgtool.verify.case import shorten
from training_imgtool.verify.facts import Finding, Status

if TYPE_CHECKING:
    from training_imgtool.registry.client import Registry
    from training_imgtool.registry.manifests import Manifest

Path = tuple[str, ...]
_LONGEST = 100  # characters of a value in a complaint
_OURS = (INPUTS, PROVENANCE)  # annotations of what imgtool attaches
_TYPES = (cyclonedx.MEDIA_TYPE, provenance.MEDIA_TYPE)
_EXPECTED = "what the lock and the image's key say"
_BUILD = ("provenance", "predicate", "buildDefinition")
_RUN = ("provenance", "predicate", "runDetails")
_FREE: tuple[Path, ...] = (  # what images of one key may differ in
    ("bill", "metadata", "tools"),
    ("bill", "metadata", "timestamp"),
    ("bill", "metadata", "component", "name"),
    ("bill", "components", "base", "name"),
    ("bill", "components", "base", "purl"),
    ("provenance", "subject"),  # its name: the image may have been copied; `_read_statement` checks its digest
    (*_BUILD, "externalParameters", "set"),
    (*_BUILD, "externalParameters", "spec"),
    (*_BUILD, "externalParameters", "template"),
    (*_BUILD, "internalParameters", "dockerfile"),
    (*_BUILD, "resolvedDependencies", "base", "uri"),
    (*_BUILD, "resolvedDependencies", "lock"),
    (*_BUILD, "resolvedDependencies", "spec"),
    (*_RUN, "builder", "version"),
    (*_RUN, "metadata", "finishedOn"),
)

_UNKNOWABLE: tuple[Path, ...] = (  # what only the run that made the image knew, and the bytes that it wrote
    (*_BUILD, "internalParameters", "found"),
    (*_BUILD, "resolvedDependencies", "bill", "digest"),  # `_judge` asks whether that one is attached
    (*_BUILD, "resolvedDependencies", "source", "uri"),
    (*_BUILD, "resolvedDependencies", "source", "digest", "gitCommit"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """An image with what this machine writes of it."""

    image: RoleImage
    where: Digest
    registry: Registry
    bill: Mapping[str, Any]
    provenance: Mapping[str, Any]


def check_attestations(
    inputs: Inputs,
    image: RoleImage,
    where: Digest,
    config: Mapping[str, Any],
    *,
    registry: Registry,
    settings: Settings,
) -> Finding:
    """Compares the attestations of an image in a registry; raises what reading from the registry raises.

    Args:
        inputs: what the images are made from.
        image: the role's image.
        where: its digest.
        config: its config, which says who made it.
        registry: the client.
        settings: of the machine.
    """
    try:
        referrers = list_referrers(registry, where)
    except RegistryRefusedError as error:
        return _finding(image, Status.UNSEEN, "", f"the registry refuses to list them: {error.message}")
    except VerificationError as error:
        return _finding(image, Status.MISMATCH, error.message, "a list of what refers to the image")
    attached = tuple(referrer for referrer in referrers if _is_ours(referrer, where, registry))
    if not attached:
        if not (inputs.spec_file.spec.attestations and settings.attestations):
            return _finding(image, Status.OK, "none, and none wanted")
        return _finding(image, Status.WARNING, "none attached", "`imgtool sign` attaches them")
    predicates = describe(inputs, image, read_trace(image, config), epoch=settings.source_date_epoch)
    case = _Case(
        image=image,
        where=where,
        registry=registry,
        bill=json.loads(encode(predicates[cyclonedx.PREDICATE])),
        provenance=json.loads(encode(make_statement(where, provenance.PREDICATE, predicates[provenance.PREDICATE]))),
    )
    return _judge(case, attached)


def _judge(case: _Case, attached: tuple[Referrer, ...]) -> Finding:
    wrong: list[str] = []
    free: list[str] = []
    bills: set[str] = set()
    named: set[str] = set()
    for referrer in attached:
        name = f"attestation {referrer.descriptor.short}"
        try:
            found = _compare(case, referrer, bills, named)
            differences = tuple(row for row in found if not any(row.path[: len(path)] == path for path in _UNKNOWABLE))
        except (VerificationError, RegistryRefusedError) as error:
            wrong.append(f"{name}: {error.message}")
            continue
        wrong += [f"{name}: {row}" for row in differences if row.both and not _is_free(row.path)]
        free += [str(row) for row in differences if not row.both or _is_free(row.path)]
    lost = [f"bill of materials {digest[:12]}, which the provenance names, is not attached" for digest in named - bills]
    (wrong if bills else free).extend(lost)
    if wrong:
        return replace(_finding(case.image, Status.MISMATCH, shorten(wrong), _EXPECTED), complaints=tuple(wrong))
    if free:
        return _finding(case.image, Status.WARNING, shorten(free), "which the image's key does not cover")
    return _finding(case.image, Status.OK, "bill of materials and provenance")


def _is_ours(referrer: Referrer, where: Digest, registry: Registry) -> bool:
    """Returns whether a referrer calls itself imgtool's, or a list calls it so; those of others lack the annotation."""
    if referrer.artifact_type not in _TYPES:
        return False  # what cosign made of imgtool's statement has no type of its own
    if not referrer.annotations.keys().isdisjoint(_OURS):
        return True
    try:
        manifest = registry.find_manifest(where.repository.digest(referrer.descriptor.digest))
    except (VerificationError, RegistryRefusedError):
        return True  # reading it again says why
    return manifest is not None and not _read_annotations(manifest).keys().isdisjoint(_OURS)


def _compare(case: _Case, referrer: Referrer, bills: set[str], named: set[str]) -> Iterator[_Difference]:
    """Yields how an attestation differs from the expected one; raises VerificationError and what reading raises.

    Adds the hash of the bill that it is to `bills`, and of the one that it names to `named`.
    """
    manifest = case.registry.manifest(case.where.repository.digest(referrer.descriptor.digest))
    subject = manifest.document.get("subject")
    if not isinstance(subject, dict) or subject.get("digest") != case.where.digest:
        raise VerificationError("it is about another image")
    annotations = _read_annotations(manifest)
    if any(referrer.annotations.get(name, annotations.get(name)) != annotations.get(name) for name in _OURS):
        raise VerificationError("the list of referrers has other annotations than the manifest")
    if PROVENANCE in annotations or referrer.artifact_type == cyclonedx.MEDIA_TYPE:
        found = [(layer.media_type, layer.digest) for layer in manifest.layers]
        if found != [(cyclonedx.MEDIA_TYPE, manifest.config.digest)]:
            raise VerificationError("it has other layers than a bill of materials")
        bills.add(manifest.config.digest.removeprefix("sha256:"))
        bill = _read(case.registry.read(case.where.repository, manifest.layers[0]), "bill of materials")
        yield from _list_differences(case.bill, bill, ("bill",))
    if PROVENANCE in annotations or referrer.artifact_type != cyclonedx.MEDIA_TYPE:
        text = read_statement(case.registry, case.where.repository, manifest)
        statement = _read_statement(text, case.where)
        yield from _list_differences(case.provenance, statement, ("provenance",))
        named |= _find_bills(statement)


def _find_bills(statement: Any) -> set[str]:
    try:
        rows = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        return {str(row["digest"]["sha256"]) for row in rows if row["name"] == "bill"}
    except (KeyError, TypeError):
        return set()


def _read(text: bytes, name: str) -> Any:
    """Reads the document, if it is written as imgtool writes it: with each key once, which every reader reads alike."""
    try:
        document = json.loads(text)
        same = encode(document) == text
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"its {name} is not JSON") from error
    if not same:
        raise VerificationError(f"its {name} is not written as imgtool writes it")
    return document


def _read_statement(text: bytes, where: Digest) -> Any:
    statement = _read(text, "provenance")
    subjects = statement.get("subject") if isinstance(statement, dict) else None
    if not isinstance(subjects, list):
        raise VerificationError("its provenance is about nothing")
    digests = [item.get("digest") if isinstance(item, dict) else None for item in subjects]
    if not digests or any(digest != {"sha256": where.hex} for digest in digests):
        raise VerificationError("its provenance is about another image")
    return statement


@dataclass(frozen=True, slots=True)
class _Difference:
    """A part of a document that is not the same, or with `both` false one that only one of the two has."""

    path: Path
    text: str
    both: bool = True

    def __str__(self) -> str:
        return f"{'/'.join(self.path)} {self.text}"


def _list_differences(ours: Any, theirs: Any, path: Path) -> Iterator[_Difference]:
    """Yields the differences of two documents.

    Rows of a list that are named `KIND:…` are one statement together: where both have rows of a kind, each is in both.
    """
    if type(ours) is not type(theirs) or not isinstance(ours, dict | list):
        if type(ours) is not type(theirs) or ours != theirs:
            yield _Difference(path, f"is {_show(theirs)}, not {_show(ours)}")
        return
    own, other = _name_children(ours), _name_children(theirs)
    unsaid: dict[str, _Difference] = {}
    for name in {**own, **other}:
        if name in own and name in other:
            yield from _list_differences(own[name], other[name], (*path, name))
            continue
        kind = _name_kind(name) if isinstance(ours, list) else name
        text, names = ("is missing", other) if name in own else ("does not belong there", own)
        if isinstance(ours, list) and (kind == "" or any(_name_kind(one) == kind for one in names)):
            yield _Difference((*path, name), text)
        else:
            text = "is only said " + ("there" if name in other else "here")
            unsaid[kind] = _Difference((*path, kind), text, both=False)
    yield from unsaid.values()


def _name_kind(name: str) -> str:
    """Returns the first part of a name that says what kind of thing has it; empty for a number or a bare string."""
    kind, colon, _ = name.partition(":")
    return kind if colon or not name.isdecimal() else ""


def _name_children(node: Any) -> dict[str, Any]:
    """Keys the values of an object by their keys, items of a list by what identifies them, else by number."""
    if isinstance(node, dict):
        return node
    children: dict[str, Any] = {}
    for number, item in enumerate(node):
        names = (
            [item[key] for key in ("bom-ref", "ref", "name", "alg") if key in item] if isinstance(item, dict) else []
        )
        name = str(names[0]) if names else item if isinstance(item, str) and ":" in item else str(number)
        children[name if name not in children else f"{name} (again, {number})"] = item
    return children


def _is_free(path: Path) -> bool:
    plain = tuple("base" if path[:2] == ("bill", "components") and part.startswith("base:") else part for part in path)
    return any(plain[: len(free)] == free for free in _FREE)


def _show(value: Any) -> str:
    text = encode({"": value}).decode()[4:-1]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _read_annotations(manifest: Manifest) -> Mapping[str, Any]:
    annotations = manifest.document.get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def _finding(image: RoleImage, status: Status, found: str, expected: str = "", check: str = "attestations") -> Finding:
    found, expected = (join_lines(text, limit=600) for text in (found, expected))
    return Finding(check=check, role=image.role, status=status, found=found, expected=expected)
