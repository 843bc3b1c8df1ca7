"""Finds numbers of processes, ranks and addresses that do not fit a job's machines, for PyTorch and JAX.

The services accept most of these jobs: the processes wait for others that never come, or leave GPUs idle.
Sources: torchrun (torch 2.13: distributed/run.py, elastic/rendezvous), JAX's distributed.py and clusters, JobSet's
host names, Kubeflow Trainer's plugins/torch and plugins/jax, training-operator 1.9 (pkg/controller.v1/pytorch).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from training_imgtool.jobs.model import NO_MAPPING, Finding, Path, Severity, get

_GPU = "nvidia.com/gpu"
RESERVED = frozenset({"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"})
TORCHRUN = re.compile(r"\btorchrun\b|-m\s+torch\.distributed\.(?:run|launch)\b")
UNKNOWN = "$"  # the value of a variable that the file does not state
_COMPUTED = re.compile(r"[$`<{%]")  # of values that the file does not state
_OPTION = re.compile(
    r"--(nnodes|nproc[-_]per[-_]node|node[-_]rank|master[-_](?:addr|port)|rdzv[-_](?:endpoint|backend)|standalone)"
    r"""(?![-\w])(?:[= ]+['"]?([^\s'"\\;]+))?"""
)
_REFERENCE = re.compile(r"\$\$?(?:\((\w+)\)|\{(\w+)\}|(\w+))")
_MORE = re.compile(r"""(?:^|\s)['"\\]*(?:\$|\{\{)""")  # a word that the file does not state
_SUFFIX = re.compile(r"(?:\.[a-z0-9-]+\.svc(?:\.cluster\.local)?)?\Z")
_NUMBERS = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?\Z")
_HERE = {"localhost", "127.0.0.1", "0.0.0.0"}  # noqa: S104  compared, not bound
_DEVICES = {"auto", "gpu", "cpu", "xpu", "npu", "hpu", "mps"}
_PORTS = range(1, 1 << 16)
_ALIKE = 0.8  # likeness of two names of which one is probably misspelt
Place = tuple[str, Path]  # a value, and its path in the document


class _Names(NamedTuple):
    """The variables from which the processes of one library learn of each other."""

    size: str
    rank: str
    address: str
    port: str = ""


_TORCH = _Names("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
_OTHERS = (  # read by the program itself, which torchrun replaces
    _Names("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"),
    _Names("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"),
    _Names("KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID", "KERAS_DISTRIBUTION_JOB_ADDRESSES"),
)
_TELLING = frozenset(name for names in (_TORCH, *_OTHERS) for name in (names.size, names.address))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Equal machines that run one program.

    Attributes:
        commands: the parts of the command.
        variables: the variables; a value that the file does not state contains `UNKNOWN`.
        count: how many machines; 0 if the number is unknown.
        gpus: the GPUs of one machine; None if the number is unknown.
        hosts: the machines' names, the first machine's first; empty if the names are unknown.
        is_open: whether there may be variables that the file does not name.
    """

    commands: Sequence[Place]
    variables: Mapping[str, Place] = field(default_factory=lambda: NO_MAPPING)
    count: int = 1
    gpus: Any = None
    hosts: Sequence[str] = ()
    is_open: bool = False

    @property
    def is_told(self) -> bool:
        """Whether the machines start torchrun, or have a variable with the number of processes or with an address."""
        return bool(_TELLING & self.variables.keys()) or any(TORCHRUN.search(text) for text, _ in self.commands)

    @property
    def has_rank(self) -> bool:
        """Whether torchrun's options name the rank of a single machine."""
        return any(re.search(r"--node[-_]rank[= ]\d", text) for text, _ in self.commands)


def read_container(running: Mapping[str, Any], path: Path) -> Machines:
    """Reads a container of Kubernetes."""
    commands = [(" ".join(map(str, running.get(key) or [])), (*path, key)) for key in ("command", "args")]
    variables = {}
    for index, item in enumerate(running.get("env") or []):
        if item:
            value = get(item, "value") if "valueFrom" not in item else UNKNOWN
            variables[str(item.get("name"))] = (str(value), (*path, "env", index, "value"))
    gpus, is_open = get(running, "resources", "limits", _GPU), bool(running.get("envFrom"))
    return Machines(commands=commands, variables=variables, gpus=gpus, is_open=is_open)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What one library tells the processes of a group; a value that nobody gives is empty.

    Attributes:
        start: where the file starts torchrun with these values; None for another program.
        is_met: whether the machines meet at the address and draw their ranks; otherwise rank 0 listens there.
        is_open: whether there may be variables or options that the file does not name.
    """

    each: Machines
    names: _Names
    values: Mapping[str, Place]
    start: Path | None = None
    is_met: bool = False
    is_open: bool = False

    def find(self, name: str) -> Place:
        """Returns a value and its place."""
        return self.values.get(name, ("", ())) if name else ("", ())

    @property
    def size(self) -> range:
        """The possible numbers of processes, or of machines with torchrun; empty if they are unknown or wrong."""
        numbers = _NUMBERS.match(self.find(self.names.size)[0])
        return range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1) if numbers else range(0)

    @property
    def is_spread(self) -> bool:
        """Whether there is a machine without rank 0 among these."""
        rank = self.find(self.names.rank)[0]
        return self.each.count > 1 or (_is_number(rank) and int(rank) > 0)

    @property
    def host(self) -> str:
        """The address of rank 0 without its port and the domains of the cluster; empty if it is missing or unknown."""
        host = self.find(self.names.address)[0].partition(",")[0].partition(":")[0]
        return "" if _COMPUTED.search(host) else _SUFFIX.sub("", host)

    @property
    def port(self) -> Place:
        """The port of rank 0, and its place."""
        address, where = self.find(self.names.address)
        own = self.find(self.names.port)
        return own if own[0] else (address.partition(",")[0].partition(":")[2], where)


def rank_findings(
    groups: Sequence[Machines], nodes: Collection[int] = (), names: Collection[str] = (), *, is_closed: bool = False
) -> Iterator[Finding]:
    """Checks what the programs of a job are told.

    Args:
        groups: the job's machines.
        nodes: the possible numbers of machines; empty if the number is unknown.
        names: the names of all machines of the file; empty if they are unknown.
        is_closed: whether there are no other names without a dot.
    """
    taken: dict[tuple[str, ...], _Told] = {}
    for told in (told for each in groups for told in _read(each)):
        yield from _size_findings(told, nodes)
        if told.size != range(1, 2):
            yield from _rank_findings(told, several=told.each.count > 1 or len(groups) > 1)
            yield from _address_findings(told)
            yield from _host_findings(told, groups, names, is_closed=is_closed)
            yield from _compare(told, taken)


def _read(each: Machines) -> Iterator[_Told]:
    """Reads the variables, and torchrun's options, which take precedence over them."""
    values = {name: (_fill_in(text, each.variables), path) for name, (text, path) in each.variables.items()}
    start = next((path for text, path in each.commands if TORCHRUN.search(text)), None)
    options: dict[str, Place] = {}
    for text, path in each.commands if start else ():
        for option, value in _OPTION.findall(text):
            name, whole = "PET_" + option.replace("-", "_").upper(), _REFERENCE.fullmatch(value)
            place = values.get(next(filter(None, whole.groups()))) if whole else None
            place = place or (_fill_in(value, values) or UNKNOWN, path)
            options[name] = place if options.get(name, place)[0] == place[0] else (UNKNOWN, path)
    told = values | options
    is_met = told.get("PET_RDZV_BACKEND", ("static", ()))[0] != "static"
    if "PET_STANDALONE" in told:
        told["PET_NNODES"] = ("1", told["PET_STANDALONE"][1])
    if is_met:
        told |= {"PET_NODE_RANK": (UNKNOWN, ()), "PET_MASTER_ADDR": ("", ()), "PET_MASTER_PORT": ("", ())}
    told["PET_MASTER_ADDR"] = told.get("PET_RDZV_ENDPOINT") or told.get("PET_MASTER_ADDR", ("", ()))
    is_open = each.is_open or any(_MORE.search(_OPTION.sub("", text)) for text, _ in each.commands)
    yield _Told(each=each, names=_TORCH, values=told, start=start, is_met=is_met, is_open=is_open)
    for names in _OTHERS if not start else ():
        yield _Told(each=each, names=names, values=told)
    if start:
        yield _Told(each=each, names=_Names("", "", "MASTER_ADDR"), values=told)


def _fill_in(text: str, variables: Mapping[str, Place]) -> str:
    return _REFERENCE.sub(lambda m: variables.get(next(filter(None, m.groups())), (m[0],))[0], text)


def _size_findings(told: _Told, nodes: Collection[int]) -> Iterator[Finding]:
    (text, where), size, gpus = told.find(told.names.size), told.size, str(told.each.gpus)
    count, place = told.find("PET_NPROC_PER_NODE")
    if told.names is _TORCH and _is_number(count) and _is_number(gpus) and int(count) != int(gpus):
        yield _warning(place, f"{count} processes on a machine with {gpus} GPUs: expected one for each GPU")
    elif told.names is _TORCH and re.fullmatch("[A-Za-z]+", count) and count not in _DEVICES:
        yield _warning(place, f"{count!r}: torchrun expects a number, auto, gpu or cpu")
    what, each_has = ("machine", ["1"]) if told.names is _TORCH else ("process", ["1", gpus, count])
    fitting = {n * int(number) for n in nodes for number in each_has if _is_number(number)}
    fitting -= {1} if told.host and told.host not in _HERE and len(fitting) > 1 else set()
    expected = " or ".join(map(str, sorted({*nodes} - {1}))) or "1"
    if text and not size and not _COMPUTED.search(text):
        yield _warning(where, f"{text!r}: expected a number such as 2{', or MIN:MAX' if what == 'machine' else ''}")
    elif size and fitting and not fitting & {*size}:
        plural = "" if text == "1" else "s" if what == "machine" else "es"
        wait = "its processes wait for each other" if size[0] > min(fitting) else "the others are left out"
        yield _warning(where, f"{text} {what}{plural}, but the job has {expected}: {wait}")
    elif told.start and not text and fitting and 1 not in fitting and not told.is_open:
        yield _warning(told.start, f"torchrun without --nnodes trains on each of {expected} machines alone")


def _rank_findings(told: _Told, *, several: bool) -> Iterator[Finding]:
    (rank, where), count = told.find(told.names.rank), told.each.count
    if _is_number(rank) and count > 1:
        yield _warning(where, f"{rank}: all {count} machines have this rank: expected a rank of its own for each")
    elif _is_number(rank) and told.size and int(rank) >= told.size[-1]:
        yield _warning(where, f"{rank}: expected a rank below {told.size[-1]}")
    elif not rank and told.start and told.size and several and not told.is_open:
        yield _warning(told.start, "torchrun without --node_rank: each machine has rank 0")


def _address_findings(told: _Told) -> Iterator[Finding]:
    address, (port, place) = told.find(told.names.address)[0], told.port
    if port and not _COMPUTED.search(port) and not (_is_number(port) and int(port) in _PORTS):
        yield _warning(place, f"{port!r}: expected a port, 1 to 65535")
    if told.host and not port and told.names in _OTHERS[1:]:
        yield _warning(place, f"{told.host} has no port: expected HOST:PORT")
    if not address and told.start and told.names is _TORCH and told.size and told.is_spread and not told.is_open:
        option = "--rdzv_endpoint" if told.is_met else "--master_addr"
        yield _warning(told.start, f"torchrun without {option}: each machine waits at its own address")


def _host_findings(
    told: _Told, groups: Sequence[Machines], names: Collection[str], *, is_closed: bool
) -> Iterator[Finding]:
    host, where, each = told.host, told.find(told.names.address)[1], told.each
    firsts = [group.hosts[0] for group in groups if group.hosts]
    expected = f"expected {firsts[0]}" if firsts else "expected the address of rank 0"
    if told.is_spread and (host in _HERE or (each.count == 1 and host in each.hosts)):
        yield _warning(where, f"{host}: each machine waits at its own address: {expected}")
    elif not told.is_met and not is_closed and any(host in group.hosts[1:] for group in groups):
        yield _warning(where, f"{host}: the processes wait for rank 0, which is not there: {expected}")
    elif host and names and host not in {*names, *_HERE}:
        label, _, domain = host.partition(".")
        own = {name.partition(".")[::2] for name in names}
        alike = label in {known[0] for known in own} or get_close_matches(host, firsts, n=1, cutoff=_ALIKE)
        if not domain if is_closed else alike or (domain and domain in {known[1] for known in own}):
            yield _warning(where, f"{host}: no machine of the job has this name: {expected}")


def _compare(told: _Told, taken: dict[tuple[str, ...], _Told]) -> Iterator[Finding]:
    """Checks that machines with the same address have the same port, and that no two of them have the same rank."""
    rank, where = told.find(told.names.rank)
    other = taken.setdefault((told.names.address, told.host), told).port[0]
    if told.host and told.port[0] != other:
        yield _warning(told.port[1], f"port {told.port[0]}: other machines have {other}")
    if told.host and _is_number(rank) and taken.setdefault((told.names.rank, told.host, rank), told) is not told:
        yield _warning(where, f"{rank}: another machine has this rank")


def _is_number(text: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", text) is not None


def _warning(where: Path, message: str) -> Finding:
    return Finding(path=where, message=message, severity=Severity.WARNING)
