"""Runs the shell steps of a GitHub workflow or action and of a GitLab job on this machine, without either service.

It knows what the files of this repository use: `run` with `env`, `inputs`, outputs, `if` of the form `inputs.X == 'Y'`,
and GitLab's `$[[ inputs.X ]]`. It passes over steps that use an action, and raises ValueError for everything else.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{ (.*?) \}\}")
_CONDITION = re.compile(r"inputs\.([\w-]+) ([!=]=) '([^']*)'")


def run_steps(steps: list[Any], cwd: Path, env: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Runs the `run` steps in order and returns their outputs as `STEP.NAME`.

    Raises CalledProcessError for a step that fails, ValueError for one that it does not understand.

    Args:
        steps: of a job or a composite action.
        cwd: the checkout.
        env: the environment; a step's own `env` is added.
        values: of expressions, such as `inputs.spec` and `github.action_path`.
    """
    outputs: dict[str, str] = {}
    for number, step in enumerate(steps):
        if "uses" in step or not _holds(step.get("if"), values):
            print(f"-- passed over: {step.get('uses') or step.get('name')}")
            continue
        print(f"-- {step.get('name', step['run'].splitlines()[0])}", flush=True)
        written = Path(env.get("RUNNER_TEMP", cwd)) / f".outputs-{number}"
        written.touch()
        own = {name: expand(str(value), values) for name, value in step.get("env", {}).items()}
        if _EXPRESSION.search(step["run"]):
            raise ValueError(f"{step['run']}: an expression in a script is code from outside")
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        subprocess.run(command, cwd=cwd, env={**env, **own, "GITHUB_OUTPUT": str(written)}, check=True)
        pairs = (line.partition("=") for line in written.read_text().splitlines())
        outputs |= {f"{step.get('id')}.{name}": value for name, _, value in pairs}
        written.unlink()
    return outputs


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replaces `${{ A || B }}` by the first of the values that is not empty."""

    def value(found: re.Match[str]) -> str:
        names = found.group(1).split(" || ")
        if unknown := [name for name in names if name not in values]:
            raise ValueError(f"{text}: unknown {unknown}")
        return next((values[name] for name in names if values[name]), "")

    return _EXPRESSION.sub(value, text)


def _holds(condition: str | None, values: Mapping[str, str]) -> bool:
    if condition is None:
        return True
    if not (found := _CONDITION.fullmatch(condition)):
        raise ValueError(f"if: {condition}: expected inputs.NAME == 'VALUE'")
    name, operator, wanted = found.groups()
    return (values[f"inputs.{name}"] == wanted) is (operator == "==")


def inputs_of(declared: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """Returns the inputs of an action or a component with their defaults, as `inputs.NAME`; raises ValueError."""
    if unknown := given.keys() - declared.keys():
        raise ValueError(f"no such inputs: {unknown}")
    return {f"inputs.{name}": given.get(name, str((row or {}).get("default", ""))) for name, row in declared.items()}


def run_component(text: str, cwd: Path, env: Mapping[str, str], given: Mapping[str, str]) -> Mapping[str, Any]:
    """Runs the one job of a GitLab component as a runner with a shell does; returns the job."""
    head, body = text.split("\n---\n")
    values = inputs_of(yaml.safe_load(head)["spec"]["inputs"], given)
    body = re.sub(r"\$\[\[ (inputs\.[\w-]+) \]\]", lambda found: values[found.group(1)], body)
    (job,) = yaml.safe_load(body).values()
    script = "\n".join(["set -e", *job["before_script"], *job["script"]])
    variables = {name: _replace(str(value), env) for name, value in job["variables"].items()}
    subprocess.run(["sh", "-c", script], cwd=cwd, env={**env, **variables}, check=True)
    return dict(job)


def _replace(text: str, env: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda found: env.get(found.group(1), ""), text)
