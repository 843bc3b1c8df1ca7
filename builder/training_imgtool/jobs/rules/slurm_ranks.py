"""Finds numbers and addresses of torchrun that do not fit the nodes of a Slurm batch script.

Sources: the manual pages of sbatch and srun: the script runs on the first node, and srun runs a command once per task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from training_imgtool.jobs.model import Finding, Severity
from training_imgtool.jobs.rules.ranks import TORCHRUN, UNKNOWN, Machines, Place, rank_findings

_NODES = re.compile(r"#SBATCH\s.*(?:--nodes[= ]|-N ?)(\d{1,9})(?:-\1)?(?!\S)")
_TASKS = re.compile(r"#SBATCH\s.*--(?:ntasks|tasks)-per-node[= ](\d{1,9})")
_ALL_TASKS = re.compile(r"#SBATCH\s.*(?:--ntasks[= ]|-n ?)(\d{1,9})")
_GPUS = re.compile(
    r"#SBATCH\s.*--(?:gpus-per-node|gpus-per-task|gres)[= ](?:gpu:)?(?:[A-Za-z][\w.-]*:)?(\d{1,9})(?![\w:])"
)
_ASSIGNED = re.compile(r"(\s*)(?:export\s+)?(\w+)=(.*)")
_LITERAL = re.compile(r"""(['"]?)([^\s'"$`\\;(){}]+)\1(?:\s+#.*|;)?\s*\Z""")
_LAUNCHER = re.compile(r"\b(?:srun|mpirun|mpiexec|ssh|pdsh|clush|parallel)\b")
_OWN_SIZE = re.compile(r"\s(?:-[NnwG]|--(?:nodes|ntasks|nodelist|ntasks-per-node|gpus\S*|gres)(?![-\w]))")
_QUOTED = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|\\.""")
_MEETS = re.compile(r"--rdzv[-_]backend[= ](?!static)")  # the machines draw their ranks
_EARLY = re.compile(r"--node[-_]rank[= ]['\"]?\$\{?SLURM_(?:NODEID|PROCID)")


def script_ranks(lines: Sequence[str]) -> Iterator[tuple[int, Finding]]:
    """Checks each command of a batch script that starts torchrun; yields the findings with their lines."""
    nodes, tasks, all_tasks, gpus = (_last(pattern, lines) for pattern in (_NODES, _TASKS, _ALL_TASKS, _GPUS))
    tasks = tasks or (all_tasks or 0) // (nodes or 1)
    variables = _read_assignments(lines)
    commands = list(_join(lines))
    is_launched = any(_LAUNCHER.search(text) for _, text in commands)
    for index, text in commands:
        start = TORCHRUN.search(text)
        if not start or re.match(r"(?:[^'\"]*=|echo\b)", text[: start.start()].lstrip()):
            continue
        before = text[: start.start()]
        has_srun, has_own = "srun" in before, _OWN_SIZE.search(before) is not None
        count = (nodes or 0) if has_srun and not has_own else 0
        if nodes and nodes > 1 and not is_launched and re.search(r"--nnodes[= ](?!1\b)", text):
            yield index, _warning("only the first node runs this line: expected srun torchrun")
        if count > 1 and tasks > 1:
            yield index, _warning(f"srun starts torchrun {tasks} times on each node: expected --ntasks-per-node=1")
        if has_srun and not _MEETS.search(text) and _EARLY.search(_QUOTED.sub(_unquote, text)):
            yield (
                index,
                _warning("the batch shell replaces the rank's variable by 0 for all nodes: let each node's do it"),
            )
        each = Machines(commands=[(text, (index,))], variables=variables, count=count, gpus=None if has_own else gpus)
        for finding in rank_findings([each], {nodes} if nodes and not has_own else ()):
            yield int(finding.path[0]), _warning(finding.message)


def _unquote(match: re.Match[str]) -> str:
    """Keeps of a quoted text what the batch shell expands."""
    return match[0] if match[0][0] == '"' else ""


def _last(pattern: re.Pattern[str], lines: Sequence[str]) -> int | None:
    found = [int(match[1]) for line in lines if (match := pattern.match(line))]
    return found[-1] if found else None


def _read_assignments(lines: Sequence[str]) -> Mapping[str, Place]:
    """Returns the variables of the script; one with several or computed values is unknown."""
    found: dict[str, Place] = {}
    for index, line in enumerate(lines):
        if match := _ASSIGNED.match(line):
            indent, name, value = match.groups()
            literal = None if indent or name in found else _LITERAL.match(value)
            found[name] = (literal[2] if literal else UNKNOWN, (index,))
    return found


def _join(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Joins the lines that a backslash continues, and leaves out comments."""
    text, start = "", 0
    for index, line in enumerate(lines):
        start = start if text else index
        if text or not line.lstrip().startswith("#"):
            text += line.rstrip().removesuffix("\\") + " "
        if not line.rstrip().endswith("\\"):
            yield start, text
            text = ""


def _warning(message: str) -> Finding:
    return Finding(path=(), message=message, severity=Severity.WARNING)
