"""What a new lock tells beside the versions that changed."""

from __future__ import annotations

from training_imgtool.pipeline.current_lock import notes_between
from training_imgtool.versions.matrix import load_matrix


def test_the_notes_of_an_upgrade_name_keras_3() -> None:
    matrix = load_matrix()
    assert any("Keras 3" in note for note in notes_between(matrix, "2.15.1", "2.16.2"))
    assert notes_between(matrix, "2.16.1", "2.16.2") == ()
    assert notes_between(matrix, "2.16.2", "2.15.1") == ()
