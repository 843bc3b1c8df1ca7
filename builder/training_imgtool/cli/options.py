"""The options that several verbs share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from training_imgtool.base.errors import UsageError
from training_imgtool.base.gates import check_given
from training_imgtool.base.user_config import read_user_config
from training_imgtool.cli.output import set_volume
from training_imgtool.cli.progress import Mode
from training_imgtool.model.spec import Role
from training_imgtool.model.targets import Target

if TYPE_CHECKING:
    from training_imgtool.plan.project_files import SpecChoice


WHOLE = "imgtool.whole"  # in the meta of a context: the help explains the rare options too
_RARE = {"allow_unknown", "as_json", "builder", "create_repository", "engine", "flags", "hosts", "issuer", "job_id"}
_RARE |= {
    "lock",
    "new_spec",
    "no_check",
    "of_machine",
    "progress",
    "quiet",
    "region",
    "restart",
    "processes",
    "secret",
    "verbose",
}
_VARIABLES = {"engine": "IMGTOOL_ENGINE", "locked": "IMGTOOL_LOCKED", "progress": "IMGTOOL_PROGRESS"}
_VARIABLES["verbose"] = "IMGTOOL_DEBUG"
_SHARED = {  # by the name of the parameter: option, its letter, and what it does
    "spec_file": ("--file", "-f", "The same as SPEC."),
    "quiet": ("--quiet", "-q", "Write only results, warnings and errors."),
    "verbose": ("--verbose", "-v", "Also write each HTTP request, and the traceback of an error."),
}


class Verb(typer.core.TyperCommand):
    """Adds to a verb the options that all verbs have, and refuses empty values before the verb does anything."""

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        has_spec = any(param.name == "spec" for param in self.params)
        for name, (*names, text) in _SHARED.items():
            if (is_flag := name != "spec_file") or has_spec:
                kind: dict[str, Any] = {"is_flag": True, "default": False} if is_flag else {"metavar": "FILE"}
                self.params.append(typer.core.TyperOption(param_decls=[name, *names], help=text, **kind))
        for param in self.params:
            param.envvar = _VARIABLES.get(param.name or "")
            param.show_envvar = False  # type: ignore[attr-defined]  # the docs list them

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the verb's words; gives each error of the parser the verb's context, so that a message can explain."""
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            error.ctx = getattr(error, "ctx", None) or ctx  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb; raises UsageError for an empty option, and for two options that contradict each other."""
        for option in self.params:
            if option.param_type_name == "option" and (value := ctx.params.get(option.name)) != option.default:
                check_given(option.opts[0], value)
        names = {"engine", "progress"} & {*ctx.params}
        config = read_user_config(os.environ) if names else {}
        for name in names:
            if ctx.get_parameter_source(name).name == "DEFAULT" and _VARIABLES[name] in config:
                ctx.params[name] = config[_VARIABLES[name]].text
        file, quiet, verbose = (ctx.params.pop(name, None) for name in _SHARED)
        if file:
            if ctx.params["spec"] is not None:
                raise UsageError(f"-f {file} and {ctx.params['spec']} are two specs", hint="give one of them")
            ctx.params["spec"] = Path(file)
        set_volume(quiet=quiet, verbose=verbose, requests=verbose and ctx.params.get("progress") != "json")
        if quiet or (verbose and ctx.params.get("progress") in {"auto", "tty"}):
            ctx.params |= {"progress": "quiet" if quiet else "plain"} if "progress" in ctx.params else {}
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the options' help; for rare options only the names, unless the context asks for the whole help."""
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Rare options": []}
        for param in self.get_params(ctx):
            kind = "Rare options" if param.name in _RARE else f"{param.param_type_name.title()}s"
            rows[kind] += filter(None, [param.get_help_record(ctx)])
        names = ", ".join(opts.split(", ")[-1].split()[0] for opts, _ in rows["Rare options"])
        if WHOLE not in ctx.meta:
            rows[f"Rare options (imgtool help {ctx.info_name})"] = [(names, "")] if names else []
            del rows["Rare options"]
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    if records == [(names, "")]:
                        formatter.write_text(names)
                    else:
                        formatter.write_dl(records, col_max=27)


Spec = Annotated[Path | None, typer.Argument(metavar="[SPEC]", help="The spec, such as image.yaml, or its folder.")]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="WHAT",
        help="Accept that a check is impossible here: bytecode, engine, gone, attached or version.",
        autocompletion=lambda: ["bytecode", "engine", "gone", "attached", "version"],
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Use VALUE for KEY of the spec; repeatable."),
]
Roles = Annotated[list[Role] | None, typer.Option("--role", metavar="ROLE", help="Only do this for ROLE; repeatable.")]
Registry = Annotated[
    str | None,
    typer.Option(metavar="HOST/PATH", help="The images' registry [default: the spec's]."),
]
Locked = Annotated[bool, typer.Option("--locked", help="Require a current lock; never write it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
ProgressMode = Annotated[
    str,
    typer.Option(
        "--progress",
        metavar="MODE",
        help="How to show progress on stderr: auto, tty, plain, json or quiet.",
        autocompletion=lambda: [str(mode) for mode in Mode],
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Choose the builder: direct, buildx, or auto (buildx only for what imgtool cannot make).",
        autocompletion=lambda: ["auto", "buildx", "direct"],
    ),
]
Builder = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The buildx builder for the stages that need buildx [default: IMGTOOL_BUILDER]."),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="id=ID,src=FILE",
        help="The file with the secret ID of the spec, or id=ID,env=VARIABLE; repeatable.",
    ),
]
TargetName = Annotated[
    Target | None, typer.Option("--target", metavar="NAME", help="The job file's format [default: job.target].")
]
JobId = Annotated[str | None, typer.Option("--job-id", metavar="NAME", help="The job's name [default: job.id].")]
Push = Annotated[bool, typer.Option("--push", help="First push the images that the registry lacks.")]
AllowUnknown = Annotated[
    bool, typer.Option("--allow-unknown", help="Accept machines and accelerators not in imgtool's tables.")
]
Issuer = Annotated[str | None, typer.Option(metavar="URL", help="With --signature: the OIDC provider of the identity.")]
NoCheck = Annotated[bool, typer.Option("--no-check", help="Do not check the job or the trainer's syntax and imports.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would happen; change nothing.")]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", "-t", metavar="TAG", help="Also tag the image with TAG; several images get ROLE-TAG."),
]


def read_choice(
    spec: Path | None, changes: list[str] | None, registry: str | None = None, *, locked: bool = False
) -> SpecChoice:
    """Returns the spec's path and the changes to the spec from the command line; raises as `read_changes`."""
    from training_imgtool.plan.project_files import SpecChoice

    return SpecChoice(path=spec, values=read_changes(changes), registry=registry, locked=locked)


def read_changes(texts: list[str] | None) -> Mapping[str, str]:
    """Reads the values of `--set`; raises UsageError if one is not KEY=VALUE, or if two have the same key."""
    values: dict[str, str] = {}
    for text in texts or ():
        key, _, value = text.partition("=")
        if not key or not value:
            raise UsageError(f"--set {text}: expected KEY=VALUE, such as python=3.11")
        if key in values:
            raise UsageError(f"--set gives {key} twice", hint="run the command once per value")
        values[key] = value
    return values


def check_output(path: Path | None, instead: str) -> None:
    """Raises UsageError for --output json and --output yaml, which other programs read as a format."""
    if str(path) in {"json", "yaml"}:
        raise UsageError(
            f"--output {path}: expected the name of a file", hint=f"{instead}; --output job.{path} writes it"
        )


def is_stdout(path: Path | None) -> bool:
    """Returns whether a path that the user gives for a result means stdout."""
    return path is not None and str(path) in {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}
