"""The program of every replica: `python -m trainer.task --job-dir=job --epochs=5`.

All processes train the same model, each on its share of the images, and print the same loss. The first one keeps a
checkpoint per epoch, and a job that starts again goes on from there. One process alone does it all, on all its devices.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras

from trainer import shapes


def main() -> None:
    """Joins the cluster that the environment names, and trains."""
    options = _parser().parse_args()
    if _is_cluster():
        keras.distribution.initialize()  # from the variables; on a TPU slice and on Slurm JAX finds the others itself
    keras.utils.set_random_seed(1)
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    first, count = jax.process_index(), jax.process_count()
    print(f"process {first} of {count}, {jax.device_count()} devices", flush=True)
    images, labels = shapes.make(options.images)
    folder = Path(options.job_dir.replace("gs://", "/gcs/", 1))  # where Vertex AI mounts buckets
    saved = sorted(folder.glob("checkpoints/epoch-*.keras"))
    model = keras.models.load_model(saved[-1]) if saved else _build()
    for epoch in range(len(saved), options.epochs):
        history = model.fit(
            images[first::count], labels[first::count], batch_size=options.batch_size // count, verbose=0, shuffle=False
        )
        print(f"epoch {epoch + 1}: loss {history.history['loss'][0]:.4f}", flush=True)
        _save(model, Path(folder, f"checkpoints/epoch-{epoch + 1:04}.keras"), keep=first == 0)
    _save(model, Path(folder, "model.keras"), keep=first == 0)


def _is_cluster() -> bool:
    """Says whether this process is one of several."""
    processes = os.environ.get("KERAS_DISTRIBUTION_NUM_PROCESSES") or os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    return int(processes) > 1 or "," in os.environ.get("TPU_WORKER_HOSTNAMES", "")


def _save(model: keras.Model, path: Path, *, keep: bool) -> None:
    """Has every process write the model, since they read its variables together, and one keep the file, once whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        model.save(Path(folder, path.name))
        if keep:
            Path(folder, path.name).replace(path)


def _build() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input(shape=(shapes.PIXELS,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(shapes.CLASSES),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss)
    return model


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainer.task", description="Trains a classifier of shapes.")
    parser.add_argument("--job-dir", default="job", help="where the checkpoint and the model go")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the images")
    parser.add_argument("--images", type=int, default=6144, help="how many images, of all processes together")
    parser.add_argument("--batch-size", type=int, default=96, help="images per step, of all processes together")
    return parser


if __name__ == "__main__":
    main()
