"""The training itself: the same steps whether one process runs them or a master hands them to workers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer import digits
from trainer.cluster import Cluster

# What a lost parameter server looks like: it does not answer, or it is back and knows none of the variables.
LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.FailedPreconditionError, tf.errors.NotFoundError)
_CHIEF = "/job:chief/replica:0/task:0/device:CPU:0"


@dataclass(frozen=True)
class Settings:
    """What the command line says.

    Attributes:
        job_dir: where everything is written: `checkpoints/` and, at the end, `model/`. May be gs://.
        epochs: passes over the training images.
        batch_size: images per step.
    """

    job_dir: str
    epochs: int
    batch_size: int

    @property
    def checkpoints(self) -> str:
        """The folder of checkpoints."""
        return os.path.join(self.job_dir, "checkpoints")

    @property
    def model(self) -> str:
        """The folder of the finished model."""
        return os.path.join(self.job_dir, "model")


class State:
    """The model, its optimizer and the number of epochs done: what a checkpoint holds."""

    def __init__(self, settings: Settings, io_device: str | None = None) -> None:
        self.model = build_model()
        self.optimizer = tf.keras.optimizers.Adam(1e-3)
        self.optimizer.jit_compile = False  # Keras 2 on GPUs would compile it, which needs libdevice; Keras 3 does not
        self.optimizer.build(self.model.trainable_variables)
        self.epoch = tf.Variable(0, dtype=tf.int64, name="epoch")
        # The master reads and writes checkpoints itself: parameter servers may see no common folder.
        self._options = tf.train.CheckpointOptions(experimental_io_device=io_device)
        checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer, epoch=self.epoch)
        self._manager = tf.train.CheckpointManager(checkpoint, settings.checkpoints, max_to_keep=3)

    def restore(self, path: str | None = None) -> bool:
        """Goes back to a checkpoint, by default the last one; False when there is none."""
        path = path or self._manager.latest_checkpoint
        if path:
            self._manager.checkpoint.restore(path, options=self._options).expect_partial()
        return bool(path)

    def save(self) -> None:
        """Writes a checkpoint."""
        self._manager.save(checkpoint_number=int(self.epoch.numpy()), options=self._options)


def build_model() -> tf.keras.Model:
    """A small network from 64 pixels to 10 logits."""
    return tf.keras.Sequential(
        [
            tf.keras.Input(shape=(digits.PIXELS,), name="pixels"),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(digits.CLASSES, name="logits"),
        ]
    )


def find_problem(settings: Settings) -> str | None:
    """Says why no checkpoint can be written, for example that a bucket does not exist or refuses; else None."""
    probe = os.path.join(settings.checkpoints, "writable")
    try:
        tf.io.gfile.makedirs(settings.checkpoints)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("x")
        tf.io.gfile.remove(probe)
    except (tf.errors.OpError, OSError) as error:
        return f"{settings.job_dir} cannot be written: {error}"
    return None


def train_alone(settings: Settings, strategy: tf.distribute.Strategy) -> int:
    """Trains in this process, on the devices of the strategy."""
    data = digits.load()
    with strategy.scope():
        state = State(settings)
    step = _step_function(strategy, state)
    iterator = iter(digits.batches(strategy, data, settings.batch_size))

    def run_epoch(steps: int) -> float:
        losses = [step(iterator) for _ in range(steps)]
        return float(tf.reduce_mean(losses))

    _train(settings, state, data, run_epoch)
    return 0


def train_with(cluster: Cluster, settings: Settings) -> int:
    """Trains with the workers and parameter servers of the cluster; this process is the master."""
    print(
        f"waiting for {len(cluster.hosts['worker'])} workers, {len(cluster.hosts['ps'])} parameter servers", flush=True
    )
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(dict(cluster.hosts)), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    tf.get_logger().setLevel("ERROR")  # else it warns of retracing at every checkpoint
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    data = digits.load()
    with strategy.scope():
        state = State(settings, io_device=_CHIEF)
    step = _step_function(strategy, state)
    iterator = iter(coordinator.create_per_worker_dataset(lambda: digits.batches(strategy, data, settings.batch_size)))

    def run_epoch(steps: int) -> float:
        losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(steps)]
        coordinator.join()  # a step whose worker is lost runs on another one, or on the same when it is back
        return float(tf.reduce_mean(coordinator.fetch(losses)))

    _train(settings, state, data, run_epoch)
    return 0


def _step_function(strategy: tf.distribute.Strategy, state: State) -> Callable[[Any], Any]:
    def replica(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = state.model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses)  # the mean over all replicas: their gradients are added up
        variables = state.model.trainable_variables
        state.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    @tf.function
    def step(iterator: Any) -> tf.Tensor:
        losses = strategy.run(replica, args=next(iterator))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    return step


def _train(settings: Settings, state: State, data: digits.Digits, run_epoch: Callable[[int], float]) -> None:
    steps = len(data.train_labels) // settings.batch_size
    if state.restore():
        print(f"resumed after epoch {int(state.epoch.numpy())}", flush=True)
    while int(state.epoch.numpy()) < settings.epochs:
        loss = run_epoch(steps)
        state.epoch.assign_add(1)
        state.save()
        print(f"epoch {int(state.epoch.numpy())}/{settings.epochs} loss {loss:.4f}", flush=True)
    finished = build_model()
    finished.set_weights(state.model.get_weights())  # plain variables: what is served knows no cluster
    tf.keras.utils.disable_interactive_logging()  # export lists every variable otherwise
    finished.export(settings.model)
    accuracy = _accuracy(finished, data)
    print(f"accuracy {accuracy:.4f} after {settings.epochs} epochs, model in {settings.model}", flush=True)


def _accuracy(model: tf.keras.Model, data: digits.Digits) -> float:
    predicted = tf.argmax(model(data.test_images, training=False), axis=1)
    return float(tf.reduce_mean(tf.cast(predicted == data.test_labels, tf.float32)))


def evaluate_checkpoints(settings: Settings, timeout: float) -> int:
    """Reports the accuracy of every checkpoint until the last epoch's, or until none came for `timeout` seconds."""
    data = digits.load()
    state = State(settings)
    for path in tf.train.checkpoints_iterator(settings.checkpoints, timeout=timeout):
        state.restore(path)
        epoch = int(state.epoch.numpy())
        print(f"evaluation: epoch {epoch} accuracy {_accuracy(state.model, data):.4f}", flush=True)
        if epoch >= settings.epochs:
            return 0
    print(f"evaluation ends: no checkpoint for {timeout:.0f} s", flush=True)
    return 0
