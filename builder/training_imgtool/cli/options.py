"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from training_imgtool.base.errors import UsageError
from training_imgtool.base.gates import check_given
from training_imgtool.cli.progress import Mode
from training_imgtool.model.spec import Role
from training_imgtool.model.targets import Target

if TYPE_CHECKING:
    from training_imgtool.make.project_files import SpecChoice


class Verb(typer.core.TyperCommand):
    """Refuses empty values before the verb does anything."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb; raises UsageError for an option that is empty."""
        for option in self.params:
            if option.param_type_name == "option" and (value := ctx.params.get(option.name)) != option.default:
                check_given(option.opts[0], value)
        return super().invoke(ctx)


def _list_engines() -> list[str]:
    from training_imgtool.make.request import ENGINES

    return list(ENGINES)


Spec = Annotated[Path | None, typer.Argument(metavar="[SPEC]", help="A spec such as image.yaml, or its folder.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the spec, such as tensorflow=2.15.1; repeatable."),
]
Roles = Annotated[list[Role] | None, typer.Option("--role", help="Only this role; repeatable.")]
Registry = Annotated[
    str | None,
    typer.Option(metavar="HOST/PATH", help="The images' registry, instead of the spec's or IMGTOOL_REGISTRY."),
]
Locked = Annotated[bool, typer.Option("--locked", help="Require a lock that exists and is current; never write it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
ProgressMode = Annotated[
    str,
    typer.Option(
        "--progress",
        metavar="MODE",
        help="auto, tty, plain, json or quiet; on stderr.",
        autocompletion=lambda: [str(mode) for mode in Mode],
    ),
]
EngineName = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="What builds: auto, buildx or direct.", autocompletion=_list_engines),
]
Builder = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Have this builder of buildx run what needs an engine; or set IMGTOOL_BUILDER."),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="id=ID,src=FILE",
        help="A secret of the spec; or id=ID,env=VARIABLE. Repeatable.",
    ),
]
TargetName = Annotated[Target | None, typer.Option("--target", help="The job file's format, instead of job.target.")]
JobId = Annotated[str | None, typer.Option("--job-id", metavar="NAME", help="The job's name.")]
Push = Annotated[bool, typer.Option("--push", help="Push the images that the registry lacks, then write the file.")]
AllowUnknown = Annotated[
    bool, typer.Option("--allow-unknown", help="Accept machines and accelerators not in imgtool's tables.")
]
Issuer = Annotated[str | None, typer.Option(metavar="URL", help="The OIDC provider that vouches for the identity.")]
NoCheck = Annotated[
    bool, typer.Option("--no-check", help="Skip the checks of the job, and of the trainer's syntax and imports.")
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", "-t", metavar="TAG", help="Add this tag; with several roles, ROLE-TAG. Repeatable."),
]


def read_choice(
    spec: Path | None, changes: list[str] | None, registry: str | None = None, *, locked: bool = False
) -> SpecChoice:
    """Reads what the command line says of a spec; raises as `read_changes`."""
    from training_imgtool.make.project_files import SpecChoice

    return SpecChoice(path=spec, values=read_changes(changes), registry=registry, locked=locked)


def read_changes(texts: list[str] | None) -> Mapping[str, str]:
    """Reads `--set KEY=VALUE`; raises UsageError for another form, and for a key that is given twice."""
    values: dict[str, str] = {}
    for text in texts or ():
        key, _, value = text.partition("=")
        if not key or not value:
            raise UsageError(f"--set {text}: expected KEY=VALUE, such as tensorflow=2.15.1")
        if key in values:
            raise UsageError(f"--set gives {key} twice", hint="run the command once per value")
        values[key] = value
    return values


def is_stdout(path: Path | None) -> bool:
    """Returns whether a path for a result means stdout."""
    return path is not None and str(path) in {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}
