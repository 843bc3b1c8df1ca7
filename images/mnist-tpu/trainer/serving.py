"""What workers and parameter servers do: they serve the master until it is gone."""

from __future__ import annotations

import socket
import time

import tensorflow as tf

from trainer.cluster import Cluster

_PAUSE = 2.0  # seconds between two looks at the master


def serve(cluster: Cluster, chief_timeout: float) -> int:
    """Runs the TensorFlow server of this task.

    Training services stop workers and parameter servers when the master has ended. Where nobody does, they end by
    themselves once the master has not answered for `chief_timeout` seconds, which leaves it time to be restarted.
    """
    tf.distribute.Server(
        tf.train.ClusterSpec(dict(cluster.hosts)), job_name=cluster.task, task_index=cluster.index, protocol="grpc"
    )
    print(f"{cluster.task} {cluster.index} serves {cluster.chief}", flush=True)
    seen = time.monotonic()
    while time.monotonic() - seen < chief_timeout:
        time.sleep(_PAUSE)
        if _answers(cluster.chief):
            seen = time.monotonic()
    print(f"{cluster.task} {cluster.index} ends: no master for {chief_timeout:.0f} s", flush=True)
    return 0


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PAUSE):
            return True
    except OSError:
        return False
