"""The devices of this machine, as the strategy that uses all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping

import tensorflow as tf

TpuAddress = Mapping[str, str]


def tpu_address(environ: Mapping[str, str]) -> TpuAddress | None:
    """How to reach the TPU that the service gave this job, or None without one.

    AI Platform names a TPU node in TPU_CONFIG; on a TPU VM, TPU_NAME says `local`.
    """
    if environ.get("TPU_CONFIG", "").strip():
        node = json.loads(environ["TPU_CONFIG"])
        return {"tpu": node["tpu_node_name"], "zone": node["zone"], "project": node["project"]}
    return {"tpu": environ["TPU_NAME"]} if environ.get("TPU_NAME") else None


def strategy(tpu: TpuAddress | None) -> tf.distribute.Strategy:
    """One replica per TPU core or GPU; without them one on the CPU."""
    if tpu is not None:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(**tpu)
        return tf.distribute.TPUStrategy(resolver)
    if len(tf.config.list_logical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()
