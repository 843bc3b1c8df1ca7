"""A process that submits the job of one target: `python -m tests.jobs.submit_once TARGET [ARGUMENT…] [--wait]`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from tests.jobs.specs import cpu, images, spec
from training_imgtool.app.config import JobRequest, JobText, make_text
from training_imgtool.app.submit import Submission, submit_once
from training_imgtool.base.progress import Event, Note
from training_imgtool.base.reference import Digest, parse_reference
from training_imgtool.jobs import JobOptions, job_data
from training_imgtool.model.spec import ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target


def spec_of(target: Target, args: tuple[str, ...] = (), job_id: str | None = None) -> ImageSpec:
    """A cluster, or for SkyPilot workers alone; for AI Platform a package that is staged first."""
    if target is Target.SKYPILOT:
        return spec({Role.WORKER: RoleSpec(count=2)}, args=args, region=None, id=job_id)
    if target is Target.AI_PLATFORM:
        roles = {Role.MASTER: cpu()}
        of = spec(roles, tensorflow="2.11.1", args=args, runtime_version="2.11", staging="gs://my-bucket", id=job_id)
        return replace(of, job=replace(of.job, python_version="3.7"))
    google = target is Target.VERTEX
    roles = {Role.MASTER: cpu(), Role.WORKER: cpu(2)} if google else {Role.MASTER: RoleSpec(), Role.WORKER: RoleSpec()}
    if program := os.environ.get("COMMAND"):
        roles = {role: replace(of_role, command=("python3", "-c", program)) for role, of_role in roles.items()}
    return spec(roles, args=args, region="us-central1" if google else None, id=job_id)


def written(of: ImageSpec, target: Target, file: str) -> JobText:
    """The job file, with a staged package for AI Platform."""
    package = "gs://my-bucket/0123/mnist-0.1.tar.gz" if of.job.staging else None
    named = images(of)
    if image := os.environ.get("IMAGE"):
        reference = parse_reference(image)
        assert isinstance(reference, Digest)
        named = dict.fromkeys(named, reference)
    job = job_data(of, named, target, JobOptions(file=file, package_uri=package))
    return make_text(job, JobRequest(), {})


def note(event: Event) -> None:
    if isinstance(event, Note):
        print(event.text, file=sys.stderr)


def main() -> None:
    """Submits; IMAGE in the environment is every role's image, and COMMAND what each runs."""
    target, *rest = sys.argv[1:]
    named = [word.removeprefix("--id=") for word in rest if word.startswith("--id=")]
    words = tuple(word for word in rest if word != "--wait" and not word.startswith("--id="))
    of = spec_of(Target(target), words, named[0] if named else None)
    job = written(of, Target(target), "job.yaml")
    Path("job.yaml").write_text(job.text)
    submission = Submission(job, os.environ, note)
    done = submit_once(submission, Path("job.yaml"), note)
    print(f"{done.job} {done.state} {'now' if done.now else 'before'}", flush=True)
    if "--wait" in rest:
        submission.wait()


if __name__ == "__main__":
    main()
