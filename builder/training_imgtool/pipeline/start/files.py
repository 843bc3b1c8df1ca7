"""The files of the image that a role's direct stages start from: its base, or the stage that an engine built."""

from __future__ import annotations

import threading
from functools import partial

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct.base_files import BaseReader
from training_imgtool.direct.files import Files
from training_imgtool.direct.image.image import read_config
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.layers.shared_records import RegistryRecords
from training_imgtool.direct.registry.memory import tag_of_stage
from training_imgtool.direct.registry.stored_stages import Stored, StoredStages
from training_imgtool.pipeline.builders import RoleBuild
from training_imgtool.pipeline.request import BuildRun
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import Descriptor


class StartFiles:
    """Lists the files of one run's bases; reads each base once, and only when an instruction depends on it."""

    def __init__(
        self, run: BuildRun, registries: Registries, stored: StoredStages, records: RegistryRecords | None
    ) -> None:
        self._run = run
        self._registries = registries
        self._stored = stored
        folder = run.settings.cache / "layers"
        believe = not run.options.no_cache
        place = str(records.store) if records and believe else ""
        self._reader = BaseReader(LayerCache(folder, records, believe=believe), LayerCache(folder), place)
        self._lock = threading.Lock()
        self._files: dict[str, Files] = {}

    def of(self, role: RoleBuild) -> Files:
        """The files of the image that the role's direct stages start from."""
        stage = role.chain.engine_stage
        key = role.image.keys[stage.label] if stage else str(role.chain.start or role.image.plan.base)
        with self._lock:
            if key not in self._files:
                self._files[key] = self._on_top(role) if stage else self._base(role)
            return self._files[key]

    def lowest(self, role: RoleBuild) -> Stored:
        """That image; raises NeedsEngineError when an engine built it and the repository has it no more."""
        stage = role.chain.engine_stage
        if stage is None:
            return self._stored.base(role.chain.start or role.image.plan.base, role.image.plan.platform)
        tag = tag_of_stage(self._run.inputs.repository, stage.label, role.image.keys[stage.label])
        stored = self._stored.stage(tag)
        if stored is None:
            raise NeedsEngineError(f"{tag}: the image of the stage {stage.label} is gone, so its files are unknown")
        return stored

    def _base(self, role: RoleBuild) -> Files:
        plan = role.image.plan
        base = role.chain.start or plan.base

        def layers() -> tuple[Descriptor, ...]:
            return self._stored.base(base, plan.platform).manifest.layers

        def diff_ids() -> tuple[str, ...]:
            return tuple(read_config(self._stored.base(base, plan.platform).config)["rootfs"]["diff_ids"])

        name = plan.base_name if base == plan.base else None
        read = partial(self._registries.at(base.repository).blob, base.repository)
        return self._reader.files(name, layers, read, diff_ids)

    def _on_top(self, role: RoleBuild) -> Files:
        plan = role.image.plan

        def layers() -> tuple[Descriptor, ...]:
            stored, below = self.lowest(role), self._stored.base(plan.base, plan.platform)
            ids, of_base = (read_config(image.config)["rootfs"]["diff_ids"] for image in (stored, below))
            if ids[: len(of_base)] != of_base:
                raise NeedsEngineError(f"the image of stage {role.chain.stages[0].base} does not begin with its base")
            return stored.manifest.layers[len(of_base) :]

        repository = self._run.inputs.repository
        base = self._base(role)
        return self._reader.files_on_top(base, layers, partial(self._registries.at(repository).blob, repository))
