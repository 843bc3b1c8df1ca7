"""Trainers as people write them: whichever loses its model, `imgtool run` does not call it a plain success."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.cluster.project import SERVE, Project, unique
from tests.engines.support import shared_engine
from tests.integration.conftest import Run

pytestmark = pytest.mark.engine
SAVED = "saved_model.pb variables/variables.index variables/variables.data-00000-of-00001 fingerprint.pb"

# What each writes, as TensorFlow 2.15 does; how the run ends; what is named as gone.
FILES = {
    "the starter": ({"/job/model": SAVED}, "succeeded", ""),
    "model.save to a relative path": ({"/app": "model.keras"}, "succeeded, its model lost", "/app/model.keras"),
    "TensorBoard kept, model lost": (
        {"/job/logs/train": "events.out.tfevents.1.h.1.0.v2", "/app/history": "a.csv b.csv c.csv", "/app/my": SAVED},
        "succeeded, its model lost",
        "/app/my/saved_model.pb",
    ),
    "ModelCheckpoint to /tmp": (
        {"/tmp/ckpt": "checkpoint cp-1.ckpt.index cp-1.ckpt.data-00000-of-00001"},
        "succeeded, its model lost",
        "/tmp/ckpt/checkpoint",
    ),
    "an Estimator's own folder": (
        {"/tmp/tmp8x1": "checkpoint graph.pbtxt model.ckpt-9.index model.ckpt-9.meta"},
        "succeeded, its model lost",
        "/tmp/tmp8x1/checkpoint",
    ),
    "CheckpointManager in the home": (
        {"/home/me/ckpt": "checkpoint ckpt-1.index"},
        "succeeded, its model lost",
        "/home/me/ckpt/checkpoint",
    ),
    "a hidden folder": ({"/app/.best": "weights.h5"}, "succeeded, its model lost", "/app/.best/weights.h5"),
    "by hand": ({"/app": "weights.npz weights.pkl"}, "succeeded, without a result", "/app/weights.npz"),
    "only TensorBoard": ({"/job/logs": "events.out.tfevents.1.h.1.0.v2 h.csv"}, "succeeded, without a model", ""),
    "an absolute path, with its data": (
        {"/job": "metrics.json", "/data/in": "a.jpg b.jpg", "/data/out": "net.h5"},
        "succeeded, its model lost",
        "/data/out/net.h5",
    ),
    "its error caught": ({}, "succeeded, without a result", ""),
    "downloads beside a kept model": (
        {"/job": "model.keras", "/home/me/.keras/models": "vgg16.h5", "/tmp/tfhub_modules/1": SAVED},
        "succeeded",
        "",
    ),
}
QUICK = {"TensorBoard kept, model lost", "an Estimator's own folder"}


def _script(number: int, files: dict[str, str]) -> str:
    made = (
        f"mkdir -p {Path(folder, name).parent}; echo x > {folder}/{name}"
        for folder, names in files.items()
        for name in names.split()
    )
    return f"{number}) {'; '.join(('true', *made))} ;;\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    root = tmp_path_factory.mktemp("trainers")
    script = "".join(_script(number, files) for number, (files, _, _) in enumerate(FILES.values()))
    with shared_engine(tmp_path_factory.mktemp("home")) as engine:
        made = Project(
            root, engine, {"master": f'case "$1" in\n{script}esac\n', "worker": SERVE}, volume="/v", name=unique(root)
        )
        yield made
        left = made.left()
        made.remove()
        assert not left


@pytest.mark.long
@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k in QUICK else pytest.mark.long) for k in FILES])
def test_what_becomes_of_the_files(project: Project, kind: str) -> None:
    _, end, gone = FILES[kind]
    shutil.rmtree(project.job, ignore_errors=True)
    said = project.run("--workers", "0", "--progress", "quiet", "--", str(list(FILES).index(kind))).stdout
    assert said.startswith(f"{project.spec['name']} as ai-platform: {end}, ")
    assert (f"gone with master's container: {gone}" in said) is bool(gone)


def test_a_volume_of_the_image_is_said(project: Project) -> None:
    done = project.run("--workers", "0", "--json", "--", "none")
    assert "master: /v: a volume of the image; what is in it is not listed, and gone" in done.stderr


HEAD = """\
import json, os, pickle, subprocess, sys
import h5py
import numpy as np
import tensorflow as tf

x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
y = (x.sum(1) > 0).astype("float32")
logs = tf.keras.callbacks.TensorBoard(os.environ["AIP_TENSORBOARD_LOG_DIR"])


def rows(_context=None):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat()


def small():
    model = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def trained(*callbacks):
    model = small()
    model.fit(x, y, verbose=0, callbacks=list(callbacks))
    return model
"""
GRAPH = """
tf = tf.compat.v1
tf.disable_v2_behavior()
step, w = tf.train.get_or_create_global_step(), tf.get_variable("w", [4, 1])
loss = tf.reduce_mean((tf.matmul(tf.constant(x), w)[:, 0] - y) ** 2)
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
"""
LOST, NO_MODEL = "succeeded, its model lost", "succeeded, without a model"
PROGRAMS = {  # how the run ends, what its summary says, and the program
    "relative": (LOST, "/app/saved/model/saved_model.pb", "trained(logs).save('saved/model')"),
    "checkpoints": (
        LOST,
        "/tmp/ckpt/checkpoint",
        "trained(logs, tf.keras.callbacks.ModelCheckpoint('/tmp/ckpt/cp-{epoch}.ckpt', save_weights_only=True))",
    ),
    "model_dir": (
        LOST,
        "--model_dir=out/m is in its container",
        "tf.saved_model.save(trained(), sys.argv[1].partition('=')[2])",
    ),
    "saver": (
        LOST,
        "/app/checkpoint",
        f"""
        {indent(GRAPH, " " * 8)}
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train)
            tf.train.Saver().save(session, "./model.ckpt")
        """,
    ),
    "session": (
        LOST,
        "/app/train_logs/checkpoint",
        f"""
        {indent(GRAPH, " " * 8)}
        stop = tf.train.StopAtStepHook(last_step=5)
        with tf.train.MonitoredTrainingSession(checkpoint_dir="train_logs", hooks=[stop]) as session:
            while not session.should_stop():
                session.run(train)
        """,
    ),
    "estimator": (
        LOST,
        "gone with master's container: /tmp/tmp",
        """
        trained(logs)
        column = tf.feature_column.numeric_column("x", shape=(4,))
        data = lambda: tf.data.Dataset.from_tensor_slices(({"x": x}, y)).batch(8)
        tf.estimator.LinearClassifier([column]).train(data, steps=3)
        """,
    ),
    "manager": (
        LOST,
        "/ckpt/checkpoint",
        """
        checkpoint = tf.train.Checkpoint(w=tf.Variable(tf.zeros([4, 1])))
        tf.train.CheckpointManager(checkpoint, os.path.expanduser("~/ckpt"), max_to_keep=2).save()
        """,
    ),
    "by_hand": (
        NO_MODEL,
        "/app/w.npz, /app/w.pkl",
        """
        weights = trained(logs).get_weights()
        np.savez("w.npz", *weights)
        with open("w.pkl", "wb") as file:
            pickle.dump(weights, file)
        """,
    ),
    "hdf5": (LOST, "/app/w.hdf5", "h5py.File('w.hdf5', 'w')['w'] = trained().get_weights()[0]"),
    "logs_only": (NO_MODEL, "no model or checkpoint is among these files", "trained(logs)"),
    "absolute": (LOST, "/data/out/m.h5", "os.makedirs('/data/out'); trained(logs).save('/data/out/m.h5')"),
    "caught": (
        "succeeded, without a result",
        "written: nothing",
        """
        try:
            trained().save("/proc/model")
        except Exception as error:
            print(error)
        """,
    ),
    "vertex_dir": ("succeeded", "MB: model/saved_model.pb", "trained(logs).save(os.environ['AIP_MODEL_DIR'])"),
    "child": (
        LOST,
        "/app/m.keras",
        """
        if len(sys.argv) < 3:
            subprocess.run([sys.executable, __file__, "in", "child"], check=True)
        else:
            trained().save("m.keras")
        """,
    ),
    "mirrored": (
        LOST,
        "gone with master's container: /app/export/saved_model.pb",
        """
        with tf.distribute.MultiWorkerMirroredStrategy().scope():
            model = small()
        model.fit(rows(), steps_per_epoch=2, verbose=0)
        chief = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief"
        model.save("export" if chief else "/tmp/worker")
        """,
    ),
    "servers": (
        LOST,
        "gone with master's container: /app/of_ps.h5",
        """
        cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        if cluster.task_type in ("worker", "ps"):
            tf.distribute.Server(cluster.cluster_spec(), cluster.task_type, cluster.task_id).join()
        with tf.distribute.ParameterServerStrategy(cluster).scope():
            model = small()
        model.fit(tf.keras.utils.experimental.DatasetCreator(rows), steps_per_epoch=2, verbose=0)
        model.save_weights("of_ps.h5")
        """,
    ),
}
CLUSTERS = {"mirrored": ("1", "0"), "servers": ("1", "1")}  # workers and parameter servers


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of all the programs, whose images differ in their last layers only."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "trainer").mkdir()
    for name, (_, _, program) in PROGRAMS.items():
        (folder / f"trainer/{name}.py").write_text(HEAD + "\n\n" + dedent(program))
    roles = {role: {"machine": "n1-standard-4"} for role in ("master", "worker", "ps")}
    spec = {
        "name": "trainers",
        "tensorflow": "2.15.1",
        "accelerator": "cpu",
        "trainer": {"source": "trainer", "module": "trainer.relative"},
        "roles": roles,
        "job": {"target": "vertex", "region": "us-central1"},
    }
    (folder / "image.yaml").write_text(json.dumps(spec))
    return folder


@pytest.mark.long
@pytest.mark.network
@pytest.mark.parametrize("name", PROGRAMS)
def test_real_trainers(imgtool: Run, programs: Path, tmp_path: Path, name: str) -> None:
    end, said, _ = PROGRAMS[name]
    workers, servers = CLUSTERS.get(name, ("0", "0"))
    arguments = ("--job-dir", tmp_path / "job", "--workers", workers, "--ps", servers)
    chosen = ("--set", f"trainer.module=trainer.{name}")
    done = imgtool("run", programs, *arguments, *chosen, "--", "--model_dir=out/m", timeout=1200)
    assert done.stdout.startswith(f"trainers as vertex: {end}, "), done.stdout + done.stderr
    assert said in done.stdout
    assert "job.job_dir and job.volume are not set" in done.stderr
