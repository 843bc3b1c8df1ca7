"""A job file with one fault: what was changed, the field that lint must name, part of its message."""

from __future__ import annotations

from dataclasses import dataclass

from tests.jobs.specs import text_of
from training_imgtool.jobs.model import Severity


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: in the file of the pair `base`, `old` (once or more) becomes `new`.

    `schema` says whether gcloud or the strict schema behind it also refuses it; without that some are no errors.
    """

    name: str
    base: str
    old: str
    new: str
    field: str
    text: str
    schema: bool = True

    @property
    def severity(self) -> Severity:
        """How lint weighs it."""
        return LIGHTER.get(self.name, Severity.ERROR)


LIGHTER = {
    "vertex-tag": Severity.WARNING,
    "vertex-cloud_tpu": Severity.WARNING,
    "vertex-retries": Severity.WARNING,
    "vertex-affinity and spot": Severity.WARNING,
    "tfjob ps": Severity.WARNING,
    "tfjob chiefs": Severity.WARNING,
    "tfjob tag": Severity.WARNING,
}


def faulty(fault: Fault) -> str:
    text = text_of(fault.base)
    assert fault.old in text, f"{fault.name}: {fault.old!r} is not in {fault.base}"
    return text.replace(fault.old, fault.new, 1)


def vx_fault(
    name: str, old: str, new: str, field: str, text: str, *, schema: bool = True, base: str = "everything"
) -> Fault:
    return Fault(name=f"vertex-{name}", base=f"{base}.vertex", old=old, new=new, field=field, text=text, schema=schema)


def other_fault(name: str, base: str, old: str, new: str, *of: str) -> Fault:
    return Fault(name=name, base=base, old=old, new=new, field=of[0], text=of[1], schema=False)


IMAGE = "us-central1-docker.pkg.dev/my-project/training/mnist@sha256:" + "a" * 64
POOL0 = "workerPoolSpecs[0]"
KUBE = "spec.template.spec.containers[0]"
