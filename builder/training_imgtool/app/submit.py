"""`imgtool submit`: submits a job to its service once, with the commands that `imgtool config --command` prints.

Before it submits a job, imgtool asks the service's own program whether the job exists. The job's name or label is
derived from the job's inputs. So a second run of `submit` finds the job even if somebody killed the first run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from training_imgtool.app.config import JobRequest, JobText, write_job_file
from training_imgtool.base.atomic_files import hold_lock
from training_imgtool.base.errors import InputError, TemporaryError, UsageError, VerificationError
from training_imgtool.base.progress import Note, Progress
from training_imgtool.jobs import JobFile
from training_imgtool.jobs.service import Argv, Service, Standing, Trouble, named, program_error
from training_imgtool.jobs.text import command_line, submit_lines
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.project_files import SpecChoice

DEFAULT = Path("config.yaml")
_LAYER = re.compile(r"\s*[0-9a-f]{12} ")  # progress of an image that Compose pulls, in hundreds of lines
_PATIENCE = {  # checks until imgtool gives up a waiting replica; the cluster may be starting nodes
    "CrashLoopBackOff": 1,
    "InvalidImageName": 1,
    "CreateContainerConfigError": 6,
    "ErrImagePull": 12,
    "ImagePullBackOff": 12,
    "Unschedulable": 120,
}
_SECONDS = 5.0  # between two checks
_LISTED = 6  # checks until the service must list a submitted job
_LOST = 12  # checks without an answer
_ANSWER = 120.0  # seconds for an answer about a job
_SILENT = 1800.0  # seconds without a line of a program that submits, uploads or pulls
_PROGRAMS = {
    "gcloud": "cloud.google.com/sdk/docs/install",
    "kubectl": "kubernetes.io/docs/tasks/tools",
    "docker": "docs.docker.com/compose/install",
    "sky": "pip install skypilot",
    "squeue": "run imgtool where Slurm's commands are: on a login node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A job that exists in the service, and the commands that watch, log and stop this job.

    Attributes:
        now: whether this run submitted the job; otherwise an earlier run did.
        others: commands that stop other jobs of the same inputs, which parallel runs submitted.
    """

    job: str
    state: str
    now: bool
    watch: str
    logs: str
    stop: str
    others: tuple[str, ...] = ()


class Submission:
    """One job and the service to which imgtool submits it.

    Args:
        written: the job file, as `write_job_file` returns it.
        environ: the environment of the services' programs.

    Raises:
        UsageError: no service accepts the file.
    """

    def __init__(self, written: JobText, environ: Mapping[str, str], progress: Progress) -> None:
        job = written.job
        if job is None or job.service is None:
            hint = "imgtool config --format docker-run prints a command per machine"
            raise UsageError("tf-config is for your own machines, to which imgtool cannot submit a job", hint=hint)
        self._job: JobFile = job
        self._service: Service = job.service
        self._environ, self._progress = environ, progress
        self._stuck: dict[str, int] = {}
        self.lock: int | None = None  # programs inherit the lock and keep it after a killed run

    def commands(self) -> str:
        """Returns the commands for a shell: the command that finds the job, and the commands that submit the job."""
        return f"{command_line(self._service.find)}\n{submit_lines(self._job)}\n"

    def submit(self) -> Submitted:
        """Submits the job unless the service has it.

        Raises:
            InputError: the service has another job of this name.
            UsageError: a program is not on PATH.
            ImgtoolError: the program that submits failed, and the job does not exist; see `program_error`.
            TemporaryError: the service does not list the submitted job.
        """
        there = self._find()
        if there is not None and (there.whole or there.succeeded is not None):
            return self._submitted(there, now=False)
        for argv in (self._job.stage, self._job.command):
            if argv and (done := self._run(argv)).returncode:
                there = self._find()  # another run may have submitted the job first
                if there is not None and there.whole:
                    return self._submitted(there, now=False)
                raise program_error(argv, done.returncode, done.stderr)
        for question in range(_LISTED):
            time.sleep(_SECONDS if question else 0)
            if there := self._find():
                return self._submitted(there, now=True)
        hint = "look for the job before you submit it again"
        raise TemporaryError(f"imgtool submitted {self._service.name}, but the service does not list it", hint=hint)

    def wait(self) -> None:
        """Follows the job until it ends, and then ends the replicas that the service leaves running.

        Raises:
            VerificationError: the job failed, was stopped, is gone, or cannot start.
            TemporaryError: the program no longer answers.
        """
        for standing in self._follow():
            if standing.succeeded is None:
                self._check_stuck(standing)
                continue
            details = () if standing.succeeded else tuple(str(trouble) for trouble in self._troubles() if trouble.code)
            if self._service.end:
                self._run(named(self._service.end, standing.name))
            if not standing.succeeded:
                hint = command_line(named(self._service.logs, standing.name))
                raise VerificationError(self._described(standing), hint=hint, details=details)
            return

    def status(self) -> tuple[Standing, tuple[str, ...]]:
        """Returns the job's state, and why replicas do not run; raises InputError if there is no such job."""
        if standing := self._find():
            return standing, (self._described(standing), *map(str, self._troubles()))
        raise InputError("the service has no job with these inputs", hint="imgtool submit submits one")

    def show_logs(self) -> None:
        """Runs the service's program that shows the chief's log, until it ends; raises as `status` and `submit`."""
        self._pass_on(named(self._service.logs, self.status()[0].name))

    def cancel(self) -> None:
        """Stops the job and all other jobs of the same inputs; raises as `status` and `submit`."""
        standing = self.status()[0]
        for name in (standing.name, *standing.others):
            self._pass_on(named(self._service.stop, name))

    def _pass_on(self, argv: Argv) -> None:
        program = self._program(argv)
        if program and (code := subprocess.run([program, *argv[1:]], env=dict(self._environ), check=False).returncode):
            raise program_error(argv, code, "")

    def _described(self, standing: Standing) -> str:
        code = "" if standing.code is None else f": the chief ended with {standing.code}"
        return f"{self._service.name} is {standing.state}{code}" + (f": {standing.cause}" if standing.cause else "")

    def _troubles(self) -> tuple[Trouble, ...]:
        if not self._service.replicas:
            return ()
        done = self._run(self._service.replicas, quiet=True)
        return () if done.returncode else tuple(self._service.troubles(done.stdout))

    def _check_stuck(self, standing: Standing) -> None:
        """Raises VerificationError if a replica waits too long; `_PATIENCE` has the limit for each reason."""
        troubles = {trouble.reason: trouble for trouble in self._troubles() if trouble.reason in _PATIENCE}
        self._stuck = {reason: self._stuck.get(reason, 0) + 1 for reason in troubles}
        for reason, questions in self._stuck.items():
            if questions >= _PATIENCE[reason]:
                hint = f"the job still exists; {command_line(named(self._service.stop, standing.name))} stops it"
                raise VerificationError(f"{self._service.name} cannot continue: {troubles[reason]}", hint=hint)

    def _follow(self) -> Iterator[Standing]:
        state, failures = None, 0
        while True:
            try:
                standing = self._find()
            except (TemporaryError, InputError) as error:
                failures += 1
                if failures == _LOST:
                    raise TemporaryError(f"{error}; the job may still run") from error
            else:
                failures = 0
                if standing is None:
                    raise VerificationError(f"{self._service.name} is gone: the service no longer lists this job")
                if standing.state != state:
                    self._progress(Note(f"{self._service.name} is {standing.state}"))
                    state = standing.state
                yield standing
            time.sleep(_SECONDS)

    def _find(self) -> Standing | None:
        """Asks the service for the job; raises as `program_error`, and InputError if another job has the name."""
        service = self._service
        done = self._run(service.find, quiet=True)
        if done.returncode:
            if service.none and service.none in done.stdout + done.stderr:
                return None
            raise program_error(service.find, done.returncode, done.stderr)
        try:
            found = service.read(done.stdout)
            if found is None and service.past and self._program(service.past):
                past = self._run(service.past, quiet=True)
                found = None if past.returncode else service.read(past.stdout)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{command_line(service.find)}: imgtool does not understand the answer"
            raise TemporaryError(message, details=tuple(done.stdout.splitlines()[:5])) from error
        if found is not None and found.key != service.key:
            raise InputError(
                f"the service has another job called {service.name}, or one that imgtool did not submit",
                hint="--job-id NAME submits this job under another name",
            )
        return found

    def _submitted(self, there: Standing, *, now: bool) -> Submitted:
        lines = (self._service.watch, self._service.logs, self._service.stop)
        watch, logs, stop = (command_line(named(argv, there.name)) for argv in lines)
        others = tuple(command_line(named(self._service.stop, name)) for name in there.others)
        return Submitted(job=there.name, state=there.state, now=now, watch=watch, logs=logs, stop=stop, others=others)

    def _program(self, argv: Argv) -> str | None:
        return shutil.which(argv[0], path=self._environ.get("PATH"))

    def _run(self, argv: Argv, *, quiet: bool = False) -> subprocess.CompletedProcess[str]:
        """Runs a program and waits until it ends; unless `quiet`, shows each line of the program's output as a note."""
        program = self._program(argv)
        if program is None:
            raise UsageError(f"the program {argv[0]} is not on PATH", hint=_PROGRAMS.get(argv[0]))
        with subprocess.Popen(
            [program, *argv[1:]],
            env=dict(self._environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=() if self.lock is None else (self.lock,),
            process_group=0,
        ) as running:
            silence = _Silence(running, _ANSWER if quiet else _SILENT)
            try:
                lines = (
                    [] if quiet or running.stdout is None else [self._noted(line, silence) for line in running.stdout]
                )
                out, err = running.communicate()
            except BaseException:
                silence.kill()
                raise
            finally:
                silence.end()
        if silence.ended_it:
            hint = "the service may have the job: imgtool submit --status asks again"
            raise TemporaryError(f"{argv[0]} printed nothing for {silence.seconds:g} s", hint=hint)
        return subprocess.CompletedProcess(argv, running.returncode, out, err or "".join(lines))

    def _noted(self, line: str, silence: _Silence) -> str:
        silence.end()
        silence.begin()
        if line.strip() and not _LAYER.match(line):
            self._progress(Note(line.rstrip()))
        return line


class _Silence:
    """Ends a program, and what it started, after so many seconds without output, because kubectl has no such limit."""

    def __init__(self, running: subprocess.Popen[str], seconds: float) -> None:
        self._running, self.seconds, self.ended_it = running, seconds, False
        self.begin()

    def begin(self) -> None:
        self._timer = threading.Timer(self.seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        self._timer.cancel()

    def _expire(self) -> None:
        self.ended_it = True
        self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)


def prepare_submission(choice: SpecChoice, request: JobRequest, machine: Machine) -> tuple[Submission, JobText]:
    """Writes the job file to `request.output` or config.yaml; raises as `write_job_file` and `Submission`.

    Raises UsageError if config.yaml exists and imgtool did not write it.
    """
    output = request.output or DEFAULT
    if request.output is None and output.exists() and b"Written by imgtool" not in output.read_bytes()[:400]:
        raise UsageError(f"{output} exists, and imgtool did not write it", hint="-o FILE writes to another file")
    written = write_job_file(choice, replace(request, output=output), machine)
    return Submission(written, machine.settings.environ, machine.progress), written


def submit_once(submission: Submission, output: Path, progress: Progress) -> Submitted:
    """Submits the job, once no other run on this machine uses the same job file; raises as `Submission.submit`."""
    with hold_lock(output.with_name(f"{output.name}.submit"), lambda text: progress(Note(text))) as lock:
        submission.lock = lock
        try:
            return submission.submit()
        finally:
            submission.lock = None
