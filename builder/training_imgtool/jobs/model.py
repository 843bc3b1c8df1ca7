"""Types and functions that all targets share: the job file as data, findings, and their places in the spec."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from training_imgtool.base.errors import FieldError, InputError
from training_imgtool.base.reference import Digest
from training_imgtool.jobs.service import KEY, Service
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

Path = tuple[str | int, ...]
Document = dict[str, Any]
NOT_CHECKED = "nothing was checked"  # the messages of such findings begin with these words
_SIZES = ("4 or 500m", "16Gi or 512Mi")
_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>m|[kKMGTPE]i?)?\Z")
_UNITS = {"m": 1e-3, "": 1.0} | {
    f"{letter}{binary}": float((1024 if binary else 1000) ** power)
    for power, letters in enumerate(("kK", "M", "G", "T", "P", "E"), start=1)
    for letter in letters
    for binary in ("", "i")
}
SHM = "/dev/shm"  # noqa: S108  a mount in the container
NO_MAPPING: Mapping[Any, Any] = MappingProxyType({})


class Format(StrEnum):
    """A format in which imgtool prints a job file."""

    YAML = "yaml"
    JSON = "json"
    GCLOUD = "gcloud"
    ENV = "env"
    DOCKER_RUN = "docker-run"


class Severity(StrEnum):
    """The severity of a finding.

    Error: the service refuses the file. Warning: the service accepts the file, but the job will fail or run badly.
    Hint: a flag of the service's program supplies the value, or imgtool does not check the value.
    """

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A message about one value of a job file: an error, a warning or a hint.

    Attributes:
        path: the value's path in the document.
        source: for an error, the document that states the rule.
        at_key: whether the finding is about the key rather than its value.
        is_unpinned: whether the value is an image without a digest.
    """

    path: Path
    message: str
    hint: str | None = None
    severity: Severity = Severity.ERROR
    source: str | None = None
    at_key: bool = False
    is_unpinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Options that the command line adds to the spec.

    Attributes:
        allow_unknown: whether machines, accelerators and regions that the tables lack are only warnings.
        file: the file's name in the submit command.
        hosts: for tf-config, the machines of each role, `HOST` or `HOST:PORT`, in order of index.
        cuda: the CUDA version in each role's image, if the image has CUDA (`Variant.cuda`).
        packages: the names of the wheels in each role's image; empty before a lock is read.
        package_uri: for runtime_version, the URL of the trainer's package (`package.staged_uri`).
        version: imgtool's version, for the header.
    """

    allow_unknown: bool = False
    file: str = "config.yaml"
    hosts: Mapping[Role, tuple[str, ...]] = field(default_factory=lambda: NO_MAPPING)
    cuda: Mapping[Role, str] = field(default_factory=lambda: NO_MAPPING)
    packages: Mapping[Role, frozenset[str]] = field(default_factory=lambda: NO_MAPPING)
    package_uri: str | None = None
    version: str = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A job file as data, before `text.dump` prints it.

    Attributes:
        documents: plain data, one entry per YAML document.
        notes: for standard error, one line each.
        command: the command line that submits the file.
        stage: the command to run before it, which uploads the trainer's package.
        service: the commands of the service's program about the job; None if no service accepts the file.
        header: comment lines for the top of the YAML, without `# `.
        api: the body for the service's API, if it differs from the file.
        script: the file's text if it is a script and not YAML; the document then contains its parts.
        flags: the command line that submits the job without a file, if the service has one.
        texts: other formats of the target, as functions of a machine's name; None gives the text for all machines.
    """

    target: Target
    documents: tuple[Document, ...]
    notes: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    api: Document | None = None
    script: str | None = None
    flags: Callable[[], tuple[str, ...]] | None = None
    stage: tuple[str, ...] = ()
    service: Service | None = None
    texts: Mapping[Format, Callable[[str | None], str]] = field(default_factory=lambda: NO_MAPPING)


Images = Mapping[Role, Digest]


def format_path(path: Path) -> str:
    """Writes `('a', 0, 'b')` as `a[0].b`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def spec_field(path: Path, names: Mapping[str, str]) -> str:
    """Converts a path in the job file to a key of the spec: replaces the longest prefix that is in `names`."""
    for cut in range(len(path), 0, -1):
        field_name = names.get(format_path(path[:cut]))
        if field_name is not None:
            rest = path[cut:]
            return field_name + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
    return format_path(path)


def add_source(findings: Iterable[Finding], source: str) -> Iterator[Finding]:
    """Adds `source`, the document that states the rule, to each error that names no such document."""
    for finding in findings:
        named = finding.source or finding.severity is not Severity.ERROR
        yield finding if named else replace(finding, source=source)


def first_of_each(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Keeps only the first finding of each severity at each place."""
    seen: set[tuple[Path, Severity]] = set()
    for finding in findings:
        if (finding.path, finding.severity) not in seen:
            seen.add((finding.path, finding.severity))
            yield finding


def errors_of(findings: Iterable[Finding], names: Mapping[str, str]) -> list[FieldError]:
    """Returns the errors among the findings; each names a key of the spec."""
    return [
        FieldError(finding.message, field=spec_field(finding.path, names), hint=finding.hint)
        for finding in first_of_each(findings)
        if finding.severity is Severity.ERROR
    ]


def notes_of(findings: Iterable[Finding], names: Mapping[str, str]) -> Iterator[str]:
    """Writes warnings and hints, one line per message; the line lists every field that has this message."""
    places_by_text: dict[tuple[Severity, str], list[str]] = {}
    for finding in first_of_each(findings):
        if finding.severity is not Severity.ERROR:
            text = f"{finding.message}; {finding.hint}" if finding.hint else finding.message
            places_by_text.setdefault((finding.severity, text), []).append(spec_field(finding.path, names))
    for (severity, text), places in places_by_text.items():
        yield f"{severity}: {', '.join(dict.fromkeys(places))}: {text}"


def image_of(images: Images, role: Role) -> str:
    """Returns the role's image reference; raises InputError if the role has no image, or a tag instead of a digest."""
    image = images.get(role)
    if image is None:
        raise InputError(f"there is no image for the role {role}", hint=f"imgtool build --role {role} --push makes it")
    if not isinstance(image, Digest):
        raise InputError(f"{image} is not a digest: a job file names images as REPOSITORY@sha256:…")
    return str(image)


def plain(value: Any) -> Any:
    """Converts a frozen dataclass to dicts, lists and scalars; leaves out fields with their default values."""
    if is_dataclass(value) and not isinstance(value, type):
        given = {item.name: getattr(value, item.name) for item in fields(value) if not is_default(item, value)}
        return {name: plain(item) for name, item in given.items()}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, str) else value


def is_default(item: Field[Any], owner: Any) -> bool:
    """Tells whether a field of a dataclass has its default value."""
    default = item.default_factory() if item.default_factory is not MISSING else item.default
    return bool(getattr(owner, item.name) == default)


def spec_hash(spec: ImageSpec) -> str:
    """Hashes the values that are not defaults, so that an imgtool which knows more keys computes the same hash."""
    text = json.dumps(plain(spec), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def job_key(images: Images, spec: ImageSpec, package: str | None = None) -> str:
    """Returns the job's key: twelve hexadecimal digits computed from the images, the spec and the uploaded package.

    If the spec has the label `imgtool-job`, the label's value is the key.
    """
    if KEY in spec.job.labels:
        return spec.job.labels[KEY]
    parts = [*(f"{role}={images[role]}" for role in sorted(images)), spec_hash(spec), package or ""]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def without_none(mapping: Mapping[str, Any]) -> Document:
    """Removes entries that are None, an empty list or an empty mapping. False and 0 stay."""
    return {key: value for key, value in mapping.items() if value is not None and value not in ({}, [], ())}


def roles_of(spec: ImageSpec) -> Iterator[Role]:
    """Lists the spec's roles in the order master, worker, ps, evaluator."""
    return (role for role in Role if role in spec.roles)


def replicas(spec: ImageSpec) -> dict[Role, int]:
    """Counts each role's replicas; leaves out roles with none. The count of a master is always 1."""
    counts = {role: 1 if role is Role.MASTER else spec.roles[role].count for role in roles_of(spec)}
    return {role: count for role, count in counts.items() if count}


def ranks(spec: ImageSpec) -> dict[Role, int]:
    """Counts each role's replicas, in the order of ranks.

    As in TensorFlow's SlurmClusterResolver, the tasks are in alphabetical order: chief, ps, worker. Evaluators come
    last, because they are not part of the resolver's cluster.
    """
    counts = replicas(spec)
    return {role: counts[role] for role in (Role.MASTER, Role.PS, Role.WORKER, Role.EVALUATOR) if role in counts}


def leader(spec: ImageSpec) -> Role | None:
    """Finds the role whose replica 0 is the chief: the master, else the workers, else None."""
    counts = replicas(spec)
    return next((role for role in (Role.MASTER, Role.WORKER) if role in counts), None)


def minor_of(spec: ImageSpec) -> str:
    """Returns the minor version of the framework, such as `2.15` for `2.15.1`."""
    return ".".join(spec.release.split(".")[:2])


def job_args(spec: ImageSpec, role: Role) -> tuple[str, ...]:
    """Returns a replica's arguments: those of its role, or those of the spec if the role sets none."""
    own = spec.roles[role].args
    return spec.args if own is None else own


def passed_job_dir(spec: ImageSpec, job_dir: str | None) -> str | None:
    """Returns `job_dir`, for the argument `--job-dir`, if the spec sets `job.pass_job_dir`; else None."""
    return job_dir if spec.job.pass_job_dir else None


NOWHERE = "job.job_dir and job.volumes are not set: the files that the program writes disappear with its containers"
_BUCKET = re.compile(  # Vertex AI mounts them at /gcs
    r"(?:\A|[=,\s])(?:(?:gs|s3a?|hdfs|viewfs|az|wasbs?|abfss?|oss|cosn?)://|/gcs/)"
)


def names_bucket(text: str) -> bool:
    """Tells whether the value of an argument or a variable contains the URL of a bucket."""
    return bool(_BUCKET.search(text))


def keeps_nothing(spec: ImageSpec) -> bool:
    """Tells whether the results end with the containers: the job has no job directory, lasting volume or bucket."""
    given = (text for role in replicas(spec) for text in (*job_args(spec, role), *spec.roles[role].env.values()))
    named = any(names_bucket(text) for text in (*given, *spec.env.values(), *spec.job.env.values()))
    return not (spec.job.job_dir or results_folder(spec) or named)


def results_folder(spec: ImageSpec) -> str | None:
    """Returns the mount path of the first volume that outlives the containers."""
    return next((volume.mount for volume in spec.job.volumes if not volume.memory), None)


def args_with_job_dir(spec: ImageSpec, role: Role, job_dir: str | None) -> list[str]:
    """Adds `--job-dir` to a replica's arguments, unless `job_dir` is None or they contain this option."""
    args = list(job_args(spec, role))
    return args if has_job_dir(args) or not job_dir else [*args, f"--job-dir={job_dir}"]


def has_job_dir(args: Iterable[str]) -> bool:
    """Tells whether the arguments contain the option `--job-dir`; `--job-directory` is a different option."""
    return any(arg == "--job-dir" or arg.startswith("--job-dir=") for arg in args)


def reserved_errors(spec: ImageSpec, *names: str) -> Iterator[FieldError]:
    """Finds variables that only imgtool may set; a name that ends with `_` means all names that begin so."""
    prefixes = tuple(name for name in names if name.endswith("_"))
    given = {"job.env": spec.job.variables, "env": spec.env}
    given |= {f"roles.{role}.env": spec.roles[role].env for role in replicas(spec)}
    for place, variables in given.items():
        for name in variables:
            if name in names or (prefixes and name.startswith(prefixes)):
                yield FieldError("imgtool sets this variable", field=f"{place}.{name}", hint="leave it out")


def size_errors(
    spec: ImageSpec, cpus: re.Pattern[str], memory: re.Pattern[str], *, examples: tuple[str, str] = _SIZES
) -> Iterator[FieldError]:
    """Finds roles whose `cpus` or `memory` does not match the target's pattern; `examples` are valid values."""
    for role in replicas(spec):
        of_role = spec.roles[role]
        if of_role.cpus and not cpus.match(of_role.cpus):
            message = f"{of_role.cpus!r} is not a number of CPUs: expected {examples[0]}"
            yield FieldError(message, field=f"roles.{role}.cpus")
        if of_role.memory and not memory.match(of_role.memory):
            message = f"{of_role.memory!r} is not a size: expected {examples[1]}"
            yield FieldError(message, field=f"roles.{role}.memory")


def get(mapping: Mapping[str, Any], *keys: str) -> Any:
    """Returns the value at a path of keys; None if a key is missing or a parent is not a mapping."""
    value: Any = mapping
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def count_of(value: Any) -> int | None:
    """Converts a count to an int; None for any other value. Google writes an int64 as a number or as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value) else None


def quantity(text: str | None) -> float | None:
    """Reads a Kubernetes quantity: returns 0.5 for `500m`, 17179869184 for `16Gi`, None if `text` is not a quantity."""
    match = _QUANTITY.match(text or "")
    return float(match["number"]) * _UNITS[match["unit"] or ""] if match else None
