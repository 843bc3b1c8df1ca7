"""Builds with the lock as it is, and once more with a new one if an archive has dropped a Debian package of it.

The archives of Debian and Ubuntu keep the newest version of a package only. A layer that somebody made before needs no
package: its record in the registry serves. Only where nobody has made it, the versions of the lock are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from training_imgtool.core.errors import PackageGoneError
from training_imgtool.core.progress import Note, Progress

if TYPE_CHECKING:
    from training_imgtool.lock.carry_over import Renewal
    from training_imgtool.pipeline.inputs import Inputs

Made = TypeVar("Made")


def build_renewed(
    prepare: Callable[[Renewal | None], Inputs], make: Callable[[Inputs], Made], progress: Progress, *, locked: bool
) -> Made:
    """Builds what `make` returns for the prepared inputs.

    Args:
        prepare: reads the inputs; with a renewal it makes a new lock first.
        make: builds.
        progress: receives why the lock is renewed.
        locked: keep the lock.

    Raises what both raise: PackageGoneError if the lock has to be kept, or if the new one has a dropped package again.
    """
    try:
        return make(prepare(None))
    except PackageGoneError as error:
        if locked:
            raise
        progress(Note(f"{error}, and no registry has the layer; imgtool renews the lock"))
    from training_imgtool.lock.carry_over import Renewal

    return make(prepare(Renewal(debian=True)))
