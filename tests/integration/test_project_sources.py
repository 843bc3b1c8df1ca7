"""The documents that imgtool was asked for: it writes the same job, or a test names the rest.

They lie in `../shared/sources`; the tests skip where that folder is not beside the checkout. gcloud is the real one,
in front of a loopback server that knows the strict schema.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_gcloud import normal
from tests.jobs.specs import LEGACY, RUNTIME, images, spec
from tests.servers.google_jobs import JobServer, gcloud_environment, serving
from training_imgtool.jobs import Format, JobFile, JobOptions, job_data
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.jobs.text import dump
from training_imgtool.model.job import Eci, Scheduling, Volume
from training_imgtool.model.spec import INIT, Gpus, ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "sources"
M, W, P = Role.MASTER, Role.WORKER, Role.PS
AI = Target.AI_PLATFORM
PACKED = "gs://my-staging-bucket/0123/mnist-0.1.tar.gz"  # gcloud packs and uploads; imgtool names what it has packed


def source(number: str) -> str:
    """The text of one document."""
    if not FOLDER.is_dir():
        pytest.skip("../shared/sources is not beside this checkout")
    (path,) = FOLDER.glob(f"{number}_*.txt")
    return path.read_text()


def commands(text: str, **variables: str) -> list[list[str]]:
    """The `gcloud ai-platform` commands of a document, its variables filled in, the packing replaced by a package."""
    made = []
    for match in re.finditer(r"gcloud ai-platform jobs submit training \S+ \\\s", text):
        line = ""
        for part in map(str.strip, text[match.start() :].splitlines()):
            line += part.removesuffix("\\") + " "
            if not (part.endswith("\\") or part == "--"):  # the book has lost the backslash behind `--`
                break
        for name, value in variables.items():
            line = re.sub(rf"\${name}\b", value, line)
        words = shlex.split(line)
        for flag in ("--package-path", "--staging-bucket"):
            if flag in words:
                del words[words.index(flag) : words.index(flag) + 2]
        where = words.index("--") if "--" in words else len(words)
        packed = [] if "--master-image-uri" in words else ["--packages", PACKED]
        made.append([*words[:where], *packed, *words[where:]])
    return made


@pytest.fixture(scope="module")
def server() -> Iterator[JobServer]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def env(server: JobServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {**os.environ, **gcloud_environment(server, tmp_path_factory.mktemp("gcloud"))}


def sent(command: Any, env: dict[str, str], server: JobServer) -> Any:
    """What the service receives from a command, given as words or as a line for bash."""
    words = ["bash", "-c", command] if isinstance(command, str) else list(command)
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    body = normal(server.bodies[-1])
    if (labels := body.get("labels", {})).pop("imgtool-job", None) and not labels:  # by which submit knows its job
        del body["labels"]
    return body


def job_of(of: ImageSpec, target: Target = AI, **options: Any) -> JobFile:
    return job_data(of, images(of), target, JobOptions(version="0", **options))


def test_000_the_command_of_the_book(env: dict[str, str], server: JobServer) -> None:
    (theirs,) = commands(source("000"))
    of = spec(
        {M: RoleSpec()}, tensorflow="2.0.4", args=("--my-extra-argument1", "foo", "--my-extra-argument2", "bar"),
        id="my_job_20190531_164700", region="asia-southeast1", scale_tier="PREMIUM_1", runtime_version="2.0",
        python_version="3.5", job_dir="gs://my-mnist-model-bucket/trained_model", staging="gs://my-staging-bucket",
    )  # fmt: skip
    upload, job = dump(job_of(of, package_uri=PACKED), Format.GCLOUD).split(" &&\n")
    assert upload == f"gcloud storage cp mnist-0.1.tar.gz {PACKED}"  # gcloud's own upload, which no server here takes
    assert sent(job, env, server) == sent(theirs, env, server)


def _second(**more: Any) -> ImageSpec:
    times = Scheduling(max_wait="3600s", max_running="7200s")
    job = {**RUNTIME, "scheduling": times, "staging": "gs://my-staging-bucket", **more}
    return spec(LEGACY, tensorflow="2.11.1", **job)


def test_001_the_dictionary() -> None:
    text = source("001")
    block = text[text.index("training_inputs = {") : text.index("job_spec = {")].rstrip() + "}"
    theirs = {"jobId": "my_job_name", "trainingInput": ast.literal_eval(block.removeprefix("training_inputs = "))}
    uri = theirs["trainingInput"]["packageUris"][0]
    of = _second(
        args=("--arg1", "value1", "--arg2", "value2"), id="my_job_name", job_dir="gs://my/training/job/directory",
        package_uris=(uri,),
    )  # fmt: skip
    ours = normal(job_of(of).documents[0])
    assert ours.pop("labels").keys() == {"imgtool-job"}
    assert ours == normal(theirs)


def test_003_tf_config_by_hand() -> None:
    text = source("003")
    cluster = ast.literal_eval(re.search(r"cluster = (\{.*?\})\n", text, re.DOTALL)[1])  # type: ignore[index]
    roles = {M: RoleSpec(), W: RoleSpec(), P: RoleSpec()}
    of = spec(roles, tensorflow="1.15.5", region=None, job_dir="gs://bucket/your/path")
    hosts = ",".join(f"{name}={host}" for name, listed in cluster.items() for host in listed)
    (nodes,) = job_of(of, Target.TF_CONFIG, hosts=parse_hosts(hosts)).documents
    for name in cluster:
        assert nodes[f"{name}-0"]["TF_CONFIG"] == {
            "cluster": cluster, "task": {"type": name, "index": 0}, "environment": "cloud",
            "model_dir": "gs://bucket/your/path",
        }  # fmt: skip
    assert "'model_dir': 'gs://bucket/your/path'" in text


def test_004_image_cache_and_gpu_pod() -> None:
    text = source("004")
    cache, pod = (_mended(part) for part in (text.split("imagecache.yaml file")[1], text.split("gpu_pod.yaml file")[1]))
    (wanted,) = cache["images"]
    nfs = {"nfs_server": "0912430d-1nsl.cn-zhangjiakou.extreme.nas.aliyuncs.com", "nfs_path": "/share"}
    of = spec(
        {M: RoleSpec(machine="ecs.gn5i-c2g1.large", gpus=Gpus(type="P4"), command=tuple(pod["command"]))},
        region=None, id="tensorflow", volumes=(Volume(mount="/tmp/imagenet", **nfs),), eci=Eci(virtual_node="none"),
    )  # fmt: skip
    our_cache, our_pod = job_of(of, Target.ECI).documents
    assert (our_cache["kind"], our_cache["metadata"]["name"]) == ("ImageCache", "tensorflow")
    assert (len(our_cache["spec"]["images"]), wanted.rpartition(":")[2]) == (1, "1.0")  # ours has a digest, not a tag
    (running,) = our_pod["spec"]["containers"]
    assert (our_pod["metadata"]["name"], running["name"], running["command"]) == (
        "tensorflow",
        "tensorflow",
        [*INIT, *pod["command"]],
    )
    assert str(running["resources"]["limits"]["nvidia.com/gpu"]) == "1"
    assert [mount["mountPath"] for mount in running["volumeMounts"]] == ["/tmp/imagenet", "/dev/shm"]
    assert our_pod["spec"]["volumes"][0]["nfs"] == {"server": nfs["nfs_server"], "path": nfs["nfs_path"]}
    assert all(value in text for value in nfs.values())
    assert our_pod["spec"]["restartPolicy"] == "OnFailure"
    assert "args" not in running
    # the page's annotations are no longer documented: `lint` says so of them, and these are today's
    assert set(our_pod["metadata"]["annotations"]) == {"k8s.aliyun.com/eci-use-specs", "k8s.aliyun.com/eci-auto-imc"}


def _mended(text: str) -> Any:
    """The lists of a block of YAML whose indentation the page has lost."""
    lists: dict[str, list[str]] = {}
    for line in text.splitlines():
        key = re.fullmatch(r"\s*(images|command):\s*", line)
        item = re.fullmatch(r'\s*- "?(.*?)"?(?: +#.*)?', line)
        if key:
            lists[key[1]] = []
        elif item and lists:
            lists[list(lists)[-1]].append(item[1])
        elif line.strip() and lists:
            break
    return lists
