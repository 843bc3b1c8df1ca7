"""`prune --registry`: deletes the images of a repository that nothing needs.

Mark and sweep, by digest. imgtool deletes an image only if the provenance beside it names a text of one of the given
specs: the present one, or one that the spec's file had in an earlier commit. So it never takes an image of another spec
that uses the same repository, one that somebody else pushed, or one without provenance. Among the images of the given
specs it keeps those of the present files and of the last commits, those that a job file names, and those with a tag
that imgtool did not make. A stage goes with the last image that begins with its layers.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from training_imgtool.core.errors import InputError, LocalFileError, RegistryRefusedError, UsageError
from training_imgtool.core.progress import Note, Progress
from training_imgtool.core.reference import Digest, Repository, Tag
from training_imgtool.core.threads import run_all
from training_imgtool.pipeline.attach import INPUTS
from training_imgtool.pipeline.inputs import Inputs
from training_imgtool.registry.client import Registry
from training_imgtool.registry.manifests import Descriptor, Manifest
from training_imgtool.spec.load import SpecFile
from training_imgtool.spec.model import Role

_HEX = "[0-9a-f]{64}"
_OWN_TAG = "[a-z][a-z0-9_-]*-[0-9a-f]{32}"  # ROLE-KEY and STAGE-KEY
_LAST = "[a-z][a-z0-9_-]*-latest-.+"  # STAGE-latest-VARIANT-PLATFORM, which moves
_ABOUT = rf"sha256-(?P<hex>{_HEX})(\.[a-z]+)?"  # tags of an image's referrers and of cosign's signatures
_ROLES = frozenset(Role)
_STAGE = "a stage that images begin with"
_MOST = 16  # requests at a time
_MOST_PAGES = 100

Entry = tuple[Mapping[str, Any], Descriptor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Specs:
    """What the given specs need, and which images are theirs.

    Attributes:
        tags: of the images of the present files.
        texts: hashes of the specs' texts, in hexadecimal: the present ones and those of all commits.
        trees: Git's ids of the trainers' folders in the last commits.
    """

    tags: frozenset[str]
    texts: frozenset[str]
    trees: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One manifest of the repository that has tags.

    Attributes:
        manifest: as the registry has it.
        tags: all that name it.
        referrers: digests of its attestations and signatures.
        made_from: the hashes that its provenance names, by name; empty where there is none that imgtool can read.
    """

    manifest: Manifest
    tags: frozenset[str]
    referrers: frozenset[str] = frozenset()
    made_from: Mapping[str, str] = field(default_factory=dict)

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """Returns the blobs that it names; none for an index."""
        return () if self.manifest.is_index else (self.manifest.config, *self.manifest.layers)

    @property
    def children(self) -> frozenset[str]:
        """Returns the digests of the manifests that an index names."""
        entries = self.manifest.entries if self.manifest.is_index else ()
        return frozenset(descriptor.digest for _, descriptor in entries)

    def begins_with(self, stage: Stored) -> bool:
        """Returns whether its lowest layers are those of a stage."""
        layers = [blob.digest for blob in self.blobs[1:]]
        below = [blob.digest for blob in stage.blobs[1:]]
        return layers[: len(below)] == below


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What goes, and why the rest stays.

    Attributes:
        repository: where.
        gone: the images and stages that nothing needs, by digest.
        about: their lists of referrers and signatures that have tags of their own, by digest.
        kept: how many manifests stay, by reason.
        bytes: of the blobs that only `gone` names.
    """

    repository: Repository
    gone: Mapping[str, Stored]
    about: Mapping[str, Stored]
    kept: Mapping[str, int]
    bytes: int

    @property
    def tags(self) -> int:
        """Returns how many tags go."""
        return sum(len(stored.tags) for part in (self.gone, self.about) for stored in part.values())

    def as_data(self) -> dict[str, Any]:
        """Returns the sweep as JSON has it."""
        gone = [{"digest": digest, "tags": sorted(stored.tags)} for digest, stored in sorted(self.gone.items())]
        return {"repository": str(self.repository), "gone": gone, "tags": self.tags, "kept": dict(self.kept)} | {
            "bytes": self.bytes
        }

    def as_text(self, format_size: Callable[[int], str], *, deleted: bool) -> str:
        """Returns the sweep for people."""
        did, are = ("deleted", "are gone") if deleted else ("would delete", "would go")
        lines = sorted(f"{did} {', '.join(sorted(one.tags))}" for one in self.gone.values())
        lines += [f"keeps {count} {reason}" for reason, count in self.kept.items()]
        lines.append(f"{self.repository}: {len(self.gone)} images and stages {are}, {self.tags} tags")
        lines.append(f"{format_size(self.bytes)} for the registry's next garbage collection")
        return "".join(f"{line}\n" for line in lines)


def read_specs(every: Iterable[Inputs], *, commits: int, environ: Mapping[str, str]) -> Specs:
    """Reads what the given specs need: their present images, and what the last `commits` of their folders made.

    Raises UsageError if there is no Git history to look at, and `commits` is not 0.
    """
    tags: set[str] = set()
    texts: set[str] = set()
    trees: set[str] = set()
    for inputs in every:
        file = inputs.spec_file
        tags |= {image.registry_tag.name for part in (inputs, *inputs.others) for image in part.images}
        texts |= {file.text_sha256, *_past_texts(file, environ)}
        trees |= _past_trees(file, commits, environ) if commits else set()
    return Specs(tags=frozenset(tags), texts=frozenset(texts), trees=frozenset(trees))


def read_used(files: Iterable[Path]) -> Mapping[str, str]:
    """Reads every digest that a job file names; gives each the file that names it.

    Raises LocalFileError for a file that it cannot read, InputError for one that names no digest.
    """
    used: dict[str, str] = {}
    for path in files:
        try:
            found = re.findall(f"sha256:{_HEX}", path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise LocalFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if not found:
            raise InputError(f"{path}: names no image by digest", hint="--keep-used-by takes job files of imgtool")
        used |= dict.fromkeys(found, path.name)
    return used


def plan_sweep(registry: Registry, repository: Repository, specs: Specs, used: Mapping[str, str]) -> Sweep:
    """Reads the repository and decides what goes; deletes nothing.

    Args:
        registry: the client.
        repository: where.
        specs: what the given specs need.
        used: digests that job files name.

    Raises what reading a registry raises.
    """
    stored = _read(registry, repository)
    images = {digest: one for digest, one in stored.items() if not all(re.fullmatch(_ABOUT, tag) for tag in one.tags)}
    reasons = {digest: _find_reason(digest, one, specs, used) for digest, one in images.items()}
    gone = {digest: one for digest, one in images.items() if not reasons[digest]}
    kept = {digest: one for digest, one in images.items() if reasons[digest]}
    for one in tuple(kept.values()):
        for digest in one.children & gone.keys():
            kept[digest], reasons[digest] = gone.pop(digest), "part of an image for several platforms"
    stages = [digest for digest in kept if reasons[digest] == _STAGE]
    for digest in sorted(stages, key=lambda digest: -len(kept[digest].blobs)):
        stage = kept.pop(digest)
        if any(one.begins_with(stage) for one in gone.values()) and not any(
            one.begins_with(stage) for one in kept.values()
        ):
            gone[digest] = stage
        else:
            kept[digest] = stage
    needed = {blob.digest for one in kept.values() for blob in one.blobs}
    freed = {blob.digest: blob.size for one in gone.values() for blob in one.blobs if blob.digest not in needed}
    return Sweep(
        repository=repository,
        gone=gone,
        about={digest: one for digest, one in stored.items() if _is_about(one, gone.keys())},
        kept=dict(sorted(Counter(reasons[digest] for digest in kept).items())),
        bytes=sum(freed.values()),
    )


def sweep(registry: Registry, plan: Sweep, progress: Progress) -> Sweep:
    """Deletes what goes: first the images, then their attestations and signatures. Asks for each afterwards.

    Returns what is gone: an image whose tag names another one by now stays. Raises RegistryRefusedError before anything
    is gone if the registry does not delete, and what deleting raises.
    """
    delete = partial(_delete, registry, plan.repository, progress)
    gone = _delete_all(delete, {digest: one.tags for digest, one in plan.gone.items()})
    about = {digest: one for digest, one in plan.about.items() if _is_about(one, gone)}
    _delete_all(delete, {digest: one.tags for digest, one in about.items()})
    untagged = {digest for image in gone for digest in plan.gone[image].referrers} - about.keys()
    _delete_all(delete, dict.fromkeys(sorted(untagged), frozenset[str]()))
    moved = len(plan.gone) - len(gone)
    return replace(
        plan,
        gone={digest: one for digest, one in plan.gone.items() if digest in gone},
        about=about,
        kept={**plan.kept, **({"of which a tag has moved meanwhile": moved} if moved else {})},
    )


def _delete_all(delete: Callable[[str, frozenset[str]], bool], tags: Mapping[str, frozenset[str]]) -> AbstractSet[str]:
    """Deletes manifests by digest, the first alone; returns those that are gone."""
    first, *others = tags or [""]
    done = {first: delete(first, tags[first])} if first else {}
    done |= run_all({digest: partial(delete, digest, tags[digest]) for digest in others}, most=_MOST)
    return {digest for digest, is_gone in done.items() if is_gone}


def _read(registry: Registry, repository: Repository) -> dict[str, Stored]:
    """Reads every manifest that has a tag, and its referrers."""
    names = registry.list_tags(repository)
    found = run_all({name: partial(registry.find_manifest, repository.tag(name)) for name in names}, most=_MOST)
    manifests = {manifest.digest: manifest for manifest in found.values() if manifest is not None}
    tags: dict[str, set[str]] = {digest: set() for digest in manifests}
    lists: dict[str, Manifest] = {}
    for name, manifest in found.items():
        if manifest is not None:
            tags[manifest.digest].add(name)
            if re.fullmatch(rf"sha256-{_HEX}", name) and manifest.is_index:
                lists[name.replace("-", ":")] = manifest
    asked = [digest for digest in manifests if not all(re.fullmatch(_ABOUT, tag) for tag in tags[digest])]
    has_api = bool(asked) and registry.find_referrers(repository.digest(asked[0])) is not None
    listed = (
        run_all({digest: partial(_list_referrers, registry, repository.digest(digest)) for digest in asked}, most=_MOST)
        if has_api
        else {}
    )
    stored = {}
    for digest, manifest in manifests.items():
        entries = [*listed.get(digest, ()), *(lists[digest].entries if digest in lists else ())]
        stored[digest] = Stored(
            manifest=manifest,
            tags=frozenset(tags[digest]),
            referrers=frozenset(descriptor.digest for _, descriptor in entries),
            made_from=_read_inputs(entry for entry, _ in entries),
        )
    return stored


def _list_referrers(registry: Registry, subject: Digest) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    page: str | None = None
    for _ in range(_MOST_PAGES):
        answer = registry.find_referrers(subject, page)
        if answer is None:
            break
        index, page = answer
        entries += index.entries
        if page is None:
            break
    return tuple(entries)


def _read_inputs(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Reads the hashes of spec and code that the first readable annotation among referrers has, by these names."""
    for entry in entries:
        try:
            return {str(name): str(digest) for name, digest in json.loads(entry["annotations"][INPUTS]).items()}
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            continue
    return {}


def _find_reason(digest: str, stored: Stored, specs: Specs, used: Mapping[str, str]) -> str:
    """Says why a manifest stays; empty where nothing needs it. A stage stays for now."""
    labels = {tag.rpartition("-")[0] for tag in stored.tags}  # one, of a role or a stage, where imgtool made them all
    rules = (
        (digest in used, "named by a job file"),
        (any(re.fullmatch(_LAST, tag) for tag in stored.tags), "the stage that the next change begins with"),
        (not all(re.fullmatch(_OWN_TAG, tag) for tag in stored.tags) or len(labels) > 1, "named by a tag of yours"),
        (bool(stored.tags & specs.tags), "of the present files"),
        (not labels & _ROLES, _STAGE),
        (not stored.made_from, "without provenance"),
        (stored.made_from.get("spec") not in specs.texts, "of another spec, or of a text that is in no commit"),
        (stored.made_from.get("source") in specs.trees, "of the last commits"),
    )
    return next((reason for applies, reason in rules if applies), "")


def _is_about(stored: Stored, gone: AbstractSet[str]) -> bool:
    """Returns whether a manifest has only tags that name images which go."""
    matches = [re.fullmatch(_ABOUT, tag) for tag in stored.tags]
    return all(match is not None and f"sha256:{match['hex']}" in gone for match in matches)


def _delete(registry: Registry, repository: Repository, progress: Progress, digest: str, tags: frozenset[str]) -> bool:
    """Deletes a manifest and its tags; returns whether it did, which it does not if a tag names another one by now."""
    names = [repository.tag(tag) for tag in sorted(tags)]
    if any(registry.head(name) not in {digest, None} for name in names):
        return False
    if registry.session.dialect.deletes_tags_first:
        for name in names:
            registry.delete(name)
    registry.delete(repository.digest(digest))
    for name in names:  # they go with the manifest in docker-registry, and stay in others
        if registry.head(name) is not None:
            registry.delete(name)
    places: tuple[Tag | Digest, ...] = (repository.digest(digest), *names)
    for place in places:
        if registry.head(place) is not None:
            raise RegistryRefusedError(
                f"{place}: the registry accepted its deletion and still has it",
                hint=registry.session.dialect.delete_hint,
            )
    progress(Note(f"deleted {', '.join(sorted(tags)) or digest}"))
    return True


def _past_texts(file: SpecFile, environ: Mapping[str, str]) -> set[str]:
    """Hashes the texts that a spec had in the commits of its Git repository; none where it is in no repository."""
    changes = _git(file.path.parent, environ, "log", "--format=", "--raw", "--no-abbrev", "--", file.path.name) or b""
    blobs = {name for line in changes.splitlines() for name in line.split()[2:4] if name.strip(b"0")}
    texts, hashes = _git(file.path.parent, environ, "cat-file", "--batch", given=b"\n".join(blobs)) or b"", set()
    while texts:
        head, _, rest = texts.partition(b"\n")
        size = int(head.split()[2])
        hashes.add(hashlib.sha256(rest[:size]).hexdigest())
        texts = rest[size + 1 :]
    return hashes


def _past_trees(file: SpecFile, commits: int, environ: Mapping[str, str]) -> set[str]:
    """Reads Git's ids of the trainer's folder in the last commits that changed the spec's folder or the trainer's."""
    entry = file.entry
    code = posixpath.relpath(posixpath.normpath(f"{entry.top}/{entry.folder}"), file.folder)
    history = _git(file.folder, environ, "log", "--format=%H", "-n", str(commits), "--", ".", code)
    if history is None or entry.paths != (entry.folder,):
        reason = "is in no Git repository" if history is None else "has trainer.include, of which Git knows no id"
        raise UsageError(
            f"--keep {commits}: {file.path} {reason}", hint="--keep 0 keeps the present images and what a file names"
        )
    place = code if code.startswith("..") else f"./{'' if code == '.' else code}"
    names = b"\n".join(commit + b":" + place.encode() for commit in history.split())
    rows = (_git(file.folder, environ, "cat-file", "--batch-check", given=names) or b"").splitlines()
    return {row.split()[0].decode() for row in rows if row.split()[1:2] == [b"tree"]}


def _git(folder: Path, environ: Mapping[str, str], *arguments: str, given: bytes = b"") -> bytes | None:
    """Runs git in a folder; None where there is no git, or no repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], input=given, capture_output=True, env=dict(environ), check=False
        )
    except OSError:
        return None
    return None if done.returncode else done.stdout
