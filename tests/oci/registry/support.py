"""What the registry client's tests share: settings of a made-up machine, a retry policy that waits for nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from training_imgtool.base.http.retry import Retry
from training_imgtool.base.progress import Event, Note
from training_imgtool.base.settings import Settings, from_environment
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST, Descriptor, sha256_digest


def machine(folder: Path, **environ: str) -> Settings:
    """A machine whose home is `folder` and that has no login of any kind."""
    return from_environment({"HOME": str(folder), "PATH": "/usr/bin:/bin", "NO_GCE_CHECK": "true", **environ})


@dataclass
class Clock:
    """A clock that moves only when somebody sleeps."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass
class Events:
    """Keeps every event."""

    all: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.all.append(event)

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.all if isinstance(event, Note)]


def quick_retry(clock: Clock | None = None, **changes: float) -> Retry:
    """The usual policy on a clock of its own; full jitter always gives the longest wait."""
    clock = clock or Clock()
    return Retry(clock=clock, sleep=clock.sleep, random=lambda: 1.0, **changes)  # type: ignore[arg-type]


def clients(settings: Settings, clock: Clock | None = None, events: Events | None = None) -> Registries:
    """Clients that wait for nothing and keep tokens in the made-up machine's cache."""
    return Registries(settings, events or Events(), retry=quick_retry(clock), idle_seconds=5.0)


def layer(content: bytes) -> Descriptor:
    """The descriptor of a layer with this content."""
    return Descriptor(OCI_LAYER_GZIP, sha256_digest(content), len(content))


def config(content: bytes = b"{}") -> Descriptor:
    """The descriptor of a config with this content."""
    return Descriptor(OCI_CONFIG, sha256_digest(content), len(content))


def image(*layers: Descriptor, config_content: bytes = b"{}") -> bytes:
    """A manifest of these layers."""
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": config(config_content).document(),
        "layers": [one.document() for one in layers],
    }
    return json.dumps(document).encode()
