"""The program of every role: `python -m trainer.task --job-dir=gs://bucket/mnist --epochs=10`.

The master (TensorFlow says chief) builds the model, hands training steps to the workers, saves a checkpoint per
epoch and at the end the model. Workers run steps, parameter servers hold the variables; both only serve. Without
a cluster in the environment one process does it all, on all its GPUs or on its TPU.

A worker that dies and comes back gets its share of the steps again. A master that comes back goes on from
the last checkpoint. When a parameter server is lost its variables are too, so the master starts itself again and goes
on from the last checkpoint as soon as the parameter server is back.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import PurePosixPath

os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # a lost worker is an error that is retried, not a wait

from trainer import cluster as clusters
from trainer import devices, serving, training

_MOST_STARTS = 10


def main(arguments: list[str] | None = None) -> int:
    """Runs the role that the environment names; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        cluster = clusters.from_environment(os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    settings = training.Settings(options.job_dir, options.epochs, options.batch_size)
    if cluster is not None and cluster.task in {"worker", "ps"}:
        return serving.serve(cluster, options.chief_timeout)
    if cluster is not None and cluster.task == "evaluator":
        return training.evaluate_checkpoints(settings, options.chief_timeout)
    if problem := training.find_problem(settings):
        print(problem, file=sys.stderr)
        return 1
    tpu = devices.tpu_address(os.environ)
    if tpu is not None or cluster is None or not cluster.distributed:
        return training.train_alone(settings, devices.strategy(tpu))
    if cluster.lacks:
        print(f"parameter server training needs a {cluster.lacks}, and the cluster has none", file=sys.stderr)
        return 2
    try:
        return training.train_with(cluster, settings)
    except training.LOST as error:
        return _start_again(error)


def _start_again(error: Exception) -> int:
    """Replaces this process by a fresh one: a TensorFlow process cannot leave a broken cluster and join it anew."""
    starts = int(os.environ.get("TRAINER_STARTS", "1"))
    print(
        f"a parameter server was lost ({type(error).__name__}: {str(error).splitlines()[0]})",
        file=sys.stderr,
        flush=True,
    )
    if starts >= _MOST_STARTS:
        return 1
    print("starting again from the last checkpoint", flush=True)
    os.environ["TRAINER_STARTS"] = str(starts + 1)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainer.task", description="Trains a classifier of handwritten digits.")
    parser.add_argument(
        "--job-dir", default=_default_job_dir(), help="where checkpoints and the model go; may be gs://"
    )
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training images, all workers together")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step")
    parser.add_argument(
        "--chief-timeout", type=float, default=300, help="seconds without a master after which the others end"
    )
    return parser


def _default_job_dir() -> str:
    """Vertex AI passes no --job-dir; its model folder is `model` in the job's folder, as it is here."""
    model = os.environ.get("AIP_MODEL_DIR", "").rstrip("/")
    scheme, separator, path = model.rpartition("://")
    return f"{scheme}{separator}{PurePosixPath(path).parent}" if model else "job"


if __name__ == "__main__":
    sys.exit(main())
