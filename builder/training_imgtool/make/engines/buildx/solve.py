"""Asks a builder to run one stage, or to make a whole image, and to push the result with `buildx build`."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.base.errors import EngineUnavailableError, LocalFileError
from training_imgtool.base.progress import Note, Progress
from training_imgtool.base.settings import Settings
from training_imgtool.make.engines.buildx.log import Attempt, SolveLog, failure
from training_imgtool.make.engines.buildx.program import find_program, list_builders, open_environment
from training_imgtool.make.engines.buildx.request import Solve
from training_imgtool.make.engines.stream import Event, Running, follow

_STOP_SECONDS = 3.0
SILENCE_SECONDS = 30.0  # without output, after which imgtool asks whether the builder answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """What buildx reports as pushed: the digest of the manifest and, if buildx reports it, of the config."""

    digest: str
    config: str | None


class Buildx:
    """Runs builds on one builder, each in its own process. Thread-safe.

    Args:
        settings: the machine's settings.
        builder: the builder's name; None lets buildx choose.
    """

    def __init__(self, settings: Settings, builder: str | None) -> None:
        self._settings = settings
        self._builder = builder
        self._program = find_program(settings)
        self._running = Running()

    @property
    def name(self) -> str:
        """The builder's name in messages."""
        return f"builder {self._builder}" if self._builder else "buildx' current builder"

    def run(self, solve: Solve, progress: Progress) -> Solved:
        """Runs a stage and pushes its image. Returns what the builder reports; the caller must ask the registry.

        Raises BuildFailedError, InputError, EngineUnavailableError, LocalFileError, and the errors of a registry.
        """
        with self._running.counted(), tempfile.TemporaryDirectory(prefix="imgtool-stage-") as place:
            folder = Path(place)
            context = _write_files(solve, folder)
            log = SolveLog(solve.subject, progress, solve.hidden)
            attempt = Attempt(solve=solve, builder=self.name, log=log)
            with open_environment(self._settings, solve.logins) as environment:
                status = self._follow(_Process(self._command(solve, folder, context), environment), attempt)
            if attempt.log.hid:
                text = f"{solve.subject}: a step printed a secret, which the log of {self.name} now has: change it"
                progress(Note(text))
            if status:
                raise failure(attempt, status)
            return _read_metadata(folder / "metadata.json", solve, self.name)

    def stop(self) -> None:
        """Stops every running build; each raises EngineUnavailableError.

        Waits until the builds have deleted their files, but not longer than a stopped process may take to end.
        """
        self._running.stop(_STOP_SECONDS + 1)

    def _follow(self, process: _Process, attempt: Attempt) -> int:
        """Reads the lines of buildx until it ends; returns its exit status."""
        try:
            for event in follow(
                process,
                where=lambda: f"{attempt.where}: {self.name}",
                stopped=self._running.stopped,
                answers=self._answers,
                silence_seconds=SILENCE_SECONDS,
            ):
                attempt.log.take(event["line"])
        except EngineUnavailableError as error:
            error.hint = attempt.start_hint
            raise
        attempt.log.finish()
        return process.status

    def _command(self, solve: Solve, folder: Path, context: Path) -> list[str]:
        command = [*self._program, "build"]
        if self._builder:
            command += ["--builder", self._builder]
        output = f"type=image,name={solve.name},push=true{',registry.insecure=true' if solve.plain_http else ''}"
        command += ["--file", str(folder / "Dockerfile"), "--platform", solve.platform, "--output", output]
        command += ["--provenance=false", "--sbom=false", "--metadata-file", str(folder / "metadata.json")]
        command += ["--progress", "rawjson"]
        if solve.no_cache:
            command.append("--no-cache")
        if solve.epoch:
            command += ["--build-arg", f"SOURCE_DATE_EPOCH={solve.epoch}"]
        for secret in solve.secrets:
            command += ["--secret", secret.argument]
        return [*command, str(context)]

    def _answers(self) -> bool:
        """Returns whether the builder runs now."""
        try:
            builders = list_builders(self._settings)
        except EngineUnavailableError:
            return False
        wanted = self._builder or self._settings.environ.get("BUILDX_BUILDER")
        return any(builder.running for builder in builders if (builder.name == wanted if wanted else builder.current))


def _write_files(solve: Solve, folder: Path) -> Path:
    """Writes the Dockerfile and the context, and returns the context's folder.

    No .dockerignore applies, because the context contains only what the stage reads. The folder's name is a hash of the
    folder's content, because buildx sends the name to the builder. The builder reuses files from its last context with
    the same name if size and time are equal (buildkit `fsutil`, buildx `build/opt.go`).
    """
    try:
        (folder / "Dockerfile").write_text(solve.dockerfile, encoding="utf-8")
        (folder / "Dockerfile.dockerignore").write_text("# nothing\n")
        with tempfile.TemporaryFile(dir=folder) as archive:
            solve.context(archive)
            archive.seek(0)
            context = folder / hashlib.file_digest(archive, "sha256").hexdigest()
            context.mkdir()
            if archive.tell():
                archive.seek(0)
                with tarfile.open(fileobj=archive) as tar:
                    tar.extractall(context, filter="fully_trusted")  # noqa: S202 - imgtool wrote it
    except (OSError, tarfile.TarError) as error:
        words = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise LocalFileError(
            f"{solve.subject}: the files for the builder cannot be written to {folder.parent}: {words}",
            hint="free space there, or set TMPDIR to another folder",
        ) from error
    return context


class _Process:
    """A process of buildx. Each line is an event for `stream.follow`; `abort` also stops the builder's work."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise EngineUnavailableError(f"{command[0]}: {error.strerror or error}") from error
        self.status = 0

    def events(self) -> Iterator[Event]:
        """Yields every line, until buildx has ended."""
        for line in self._process.stderr or ():
            yield {"line": line}
        self.status = self._process.wait()

    def abort(self) -> None:
        """Stops buildx if it still runs."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def close(self) -> None:
        """Closes the pipe."""
        if self._process.stderr:
            self._process.stderr.close()


def _read_metadata(path: Path, solve: Solve, builder: str) -> Solved:
    """Reads the file that `--metadata-file` names; raises EngineUnavailableError if the file contains no digest."""
    try:
        document = json.loads(path.read_text())
        digest, config = document.get("containerimage.digest"), document.get("containerimage.config.digest")
    except (OSError, ValueError, AttributeError):
        digest = config = None
    if not isinstance(digest, str):
        raise EngineUnavailableError(f"{solve.subject}: {builder} reports success and does not report the digest")
    return Solved(digest=digest, config=config if isinstance(config, str) else None)
