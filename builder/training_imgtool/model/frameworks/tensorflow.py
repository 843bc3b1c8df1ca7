"""The facts about TensorFlow that imgtool knows without asking a package index."""

from __future__ import annotations

from collections.abc import Mapping

from training_imgtool.model.frameworks.framework import Framework, Headers, is_true

KERAS_2 = "TF_USE_LEGACY_KERAS"
"""The variable that makes the package tf-keras provide tf.keras."""

TENSORFLOW = Framework(
    key="tensorflow",
    title="TensorFlow",
    example="2.15.1",
    packages=("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-tpu"),
    others=(r"tf-nightly.*|intel-tensorflow.*|tensorflow-(?:macos|intel|rocm.*|directml|aarch64|cpu-aws|gpu-macosx)"),
    own=("tensorflow-cpu-aws", "tensorflow-estimator", "keras"),
    last_releases={"tensorflow-gpu": "2.11.0"},
    cuda_extras=("and-cuda",),
    headers=Headers(
        folder="tensorflow/include",
        source=rb"\bsysconfig\.get_include\b|\bget_compile_flags\b|tensorflow/include",
        hints=(b"get_include", b"get_compile_flags", b"tensorflow/include"),
    ),
    roles=("master", "worker", "ps", "evaluator"),
    tpu_target="ai-platform",
    one_process="uses all devices of a replica from one process",
    by_variable={KERAS_2: "tf-keras"},
    oldest_starter="2.4",  # in which tf.distribute.MultiWorkerMirroredStrategy is no longer experimental
    starter_env={"TF_CPP_MIN_LOG_LEVEL": "1"},
)


def asks_for_keras_2(env: Mapping[str, str]) -> bool:
    """Returns whether the variables make tf.keras use Keras 2 from the package tf-keras."""
    return is_true(env.get(KERAS_2))
