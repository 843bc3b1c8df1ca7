"""Golden files with one fault each: what was changed, the field that lint must name, part of its message."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training_imgtool.jobs.model import Severity

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "jobs"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: in the golden file `base`, `old` (once or more) becomes `new`.

    `schema` says whether gcloud or the strict schema behind it also refuses it; without that some are no errors.
    """

    name: str
    base: str
    old: str
    new: str
    field: str
    text: str
    schema: bool = True

    @property
    def severity(self) -> Severity:
        """How lint weighs it."""
        return LIGHTER.get(self.name, Severity.ERROR)


LIGHTER = {
    "ai-tag": Severity.WARNING,
    "ai-image": Severity.WARNING,
    "ai-dead weight": Severity.WARNING,
    "ai-null": Severity.HINT,
    "vertex-tag": Severity.WARNING,
    "vertex-cloud_tpu": Severity.WARNING,
    "tfjob ps": Severity.WARNING,
    "tfjob chiefs": Severity.WARNING,
    "tfjob tag": Severity.WARNING,
}


def faulty(fault: Fault) -> str:
    text = (GOLDEN / f"{fault.base}.yaml").read_text()
    assert fault.old in text, f"{fault.name}: {fault.old!r} is not in {fault.base}"
    return text.replace(fault.old, fault.new, 1)


def _ai(
    name: str, old: str, new: str, field: str, text: str, *, schema: bool = True, base: str = "everything"
) -> Fault:
    where = f"trainingInput.{field}" if field and not field.startswith(("labels", "jobId", "job_id")) else field
    return Fault(name=f"ai-{name}", base=f"{base}.ai-platform", old=old, new=new, field=where, text=text, schema=schema)


def _vx(
    name: str, old: str, new: str, field: str, text: str, *, schema: bool = True, base: str = "everything"
) -> Fault:
    return Fault(name=f"vertex-{name}", base=f"{base}.vertex", old=old, new=new, field=field, text=text, schema=schema)


def _other(name: str, base: str, old: str, new: str, *of: str) -> Fault:
    return Fault(name=name, base=base, old=old, new=new, field=of[0], text=of[1], schema=False)


IMAGE = "us-central1-docker.pkg.dev/my-project/training/mnist@sha256:" + "a" * 64
POOL0 = "workerPoolSpecs[0]"
KUBE = "spec.template.spec.containers[0]"

FAULTS = (
    _ai("unknown key", "  jobDir:", "  jobdir:", "jobdir", "'jobdir' is not a key here"),
    _ai("snake case", "  masterType:", "  master_type: x\n  masterType:", "master_type", "is not a key here"),
    _ai("imageURI", "    imageUri:", "    imageURI: x\n    imageUri:", "masterConfig.imageURI", "is not a key here"),
    _ai("tier", '"CUSTOM"', '"CUSTOMIZED"', "scaleTier", "found 'CUSTOMIZED'"),
    _ai(
        "accelerator",
        '"NVIDIA_TESLA_V100"',
        '"nvidia-tesla-v100"',
        "masterConfig.acceleratorConfig.type",
        "expected NVIDIA_TESLA_K80",
    ),
    _ai("two hours", '"7200s"', '"2h"', "scheduling.maxRunningTime", "'2h' is not a duration"),
    _ai("bare seconds", '"7200s"', "7200", "scheduling.maxRunningTime", "7200 is not a duration"),
    _ai("count in words", "workerCount: 3", 'workerCount: "two"', "workerCount", "expected a whole number"),
    _ai("half a worker", "workerCount: 3", "workerCount: 2.5", "workerCount", "expected a whole number"),
    _ai(
        "no worker type",
        '  workerType: "n1-standard-16"\n',
        "",
        "workerType",
        "is missing: workerCount is 3",
        schema=False,
    ),
    _ai(
        "no master type",
        '  masterType: "n1-standard-16"\n',
        "",
        "masterType",
        "is missing: scaleTier CUSTOM",
        schema=False,
    ),
    _ai("short wait", '"3600s"', '"60s"', "scheduling.maxWaitTime", "60s is too short", schema=False),
    _ai(
        "runtime and image",
        "  region:",
        '  runtimeVersion: "2.11"\n  region:',
        "runtimeVersion",
        "does not go with an image",
        schema=False,
    ),
    _ai(
        "bare version",
        'runtimeVersion: "2.11"',
        "runtimeVersion: 2.10",
        "runtimeVersion",
        "found 2.1: expected text",
        base="runtime",
    ),
    _ai(
        "bare tpu version",
        'tpuTfVersion: "2.11"',
        "tpuTfVersion: 2.10",
        "workerConfig.tpuTfVersion",
        "found 2.1: expected text",
        base="tpu-worker",
    ),
    _ai("number as arg", '- "--epochs=10"', "- 10", "args[0]", "found 10: expected text"),
    _ai("yes as arg", '- "--epochs=10"', "- y", "args[0]", "found true: expected text", schema=False),
    _ai(
        "args and containerArgs",
        "    imageUri:",
        '    containerArgs: ["x"]\n    imageUri:',
        "args",
        "does not go with containerCommand",
        schema=False,
    ),
    _ai("tag", "@sha256:" + "a" * 64, ":latest", "masterConfig.imageUri", "is a tag, which can move", schema=False),
    _ai(
        "image",
        "us-central1-docker.pkg.dev/my-project",
        "us-central1-docker.pkg.dev/My-Project",
        "masterConfig.imageUri",
        "is not a repository path",
        schema=False,
    ),
    _ai("job id", '"mnist_full"', '"mnist-full.1"', "jobId", "is not a job's name", schema=False),
    _ai("label", '"vision"', '"Vision"', "labels.team", "is not a label's value", schema=False),
    _ai("label type", '"vision"', "1", "labels.team", "found 1: expected text", schema=False),
    _ai("region", '"us-central1"\n  jobDir', '"us-central"\n  jobDir', "region", "is not a region", schema=False),
    _ai(
        "machine",
        'masterType: "n1-standard-16"',
        'masterType: "n1-standard-17"',
        "masterType",
        "is not a machine type",
        schema=False,
    ),
    _ai(
        "mixed types",
        'workerType: "n1-standard-8"',
        'workerType: "standard"',
        "workerType",
        "is a legacy type",
        schema=False,
        base="trio",
    ),
    _ai(
        "GPU count",
        "count: 2",
        "count: 3",
        "masterConfig.acceleratorConfig.count",
        "3 x NVIDIA_TESLA_V100 does not fit",
        schema=False,
    ),
    _ai("no GPU count", "      count: 2\n", "", "masterConfig.acceleratorConfig.count", "is missing", schema=False),
    _ai("dead weight", "  workerCount: 2\n", "", "workerType", "has no effect", schema=False, base="trio"),
    _ai(
        "TPU count",
        "count: 8",
        "count: 4",
        "workerConfig.acceleratorConfig.count",
        "4 x TPU_V3: expected 8",
        schema=False,
        base="tpu-worker",
    ),
    _ai(
        "no TPU version",
        '    tpuTfVersion: "2.11"\n',
        "",
        "workerConfig.tpuTfVersion",
        "is missing",
        schema=False,
        base="tpu-worker",
    ),
    _ai(
        "TPU version elsewhere",
        "    imageUri:",
        '    tpuTfVersion: "2.11"\n    imageUri:',
        "masterConfig.tpuTfVersion",
        "goes only with a cloud_tpu worker",
        schema=False,
    ),
    _ai("bucket", '"gs://my-bucket/mnist"', '"/mnt/x"', "jobDir", "is not a path in Cloud Storage", schema=False),
    _ai(
        "network",
        '"projects/123456789/global/networks/training"',
        '"default"',
        "network",
        "is not a network",
        schema=False,
    ),
    _ai(
        "null",
        '  serviceAccount: "trainer@my-project.iam.gserviceaccount.com"',
        "  serviceAccount:",
        "serviceAccount",
        "is empty (null)",
        schema=False,
    ),
    _ai("twice", "  region:", '  region: "us-west1"\n  region:', "region", "given twice", schema=False),
    _ai("parameter", '"DOUBLE"', '"FLOAT"', "hyperparameters.params[0].type", "found 'FLOAT'", base="hyperparameters"),
    _ai(
        "parameter value",
        "minValue: 0.0001",
        'minValue: "low"',
        "hyperparameters.params[0].minValue",
        "expected a number",
        base="hyperparameters",
    ),
    _ai(
        "worker image alone",
        '    imageUri: "' + IMAGE + '"\n',
        "",
        "masterConfig.imageUri",
        "is missing: worker has an image",
    ),
    _vx("unknown key", "scheduling:", "schedule: {}\nscheduling:", "schedule", "'schedule' is not a key here"),
    _vx("snake case", "  replicaCount: 1", "  replica_count: 1", f"{POOL0}.replica_count", "is not a key here"),
    _vx(
        "two chiefs",
        "  replicaCount: 1",
        "  replicaCount: 2",
        f"{POOL0}.replicaCount",
        "pool 0 is the chief",
        schema=False,
    ),
    _vx(
        "no image",
        '    imageUri: "' + IMAGE + '"\n',
        "",
        f"{POOL0}.containerSpec",
        "'imageUri' is missing",
        schema=False,
    ),
    _vx("tag", "@sha256:" + "a" * 64, ":v1", f"{POOL0}.containerSpec.imageUri", "is a tag", schema=False),
    _vx(
        "accelerator",
        '"NVIDIA_TESLA_V100"',
        '"NVIDIA_TESLA_L4"',
        f"{POOL0}.machineSpec.acceleratorType",
        "found 'NVIDIA_TESLA_L4'",
    ),
    _vx(
        "half an accelerator",
        "    acceleratorCount: 2\n",
        "",
        f"{POOL0}.machineSpec.acceleratorCount",
        "or neither",
        schema=False,
    ),
    _vx(
        "L4 count",
        "acceleratorCount: 2",
        "acceleratorCount: 4",
        f"{POOL0}.machineSpec.acceleratorCount",
        "4 x NVIDIA_L4",
        schema=False,
        base="l4",
    ),
    _vx(
        "legacy type",
        '"n1-standard-8"',
        '"complex_model_m"',
        f"{POOL0}.machineSpec.machineType",
        "is a legacy type",
        schema=False,
        base="trio",
    ),
    _vx(
        "cloud_tpu",
        '"cloud-tpu"',
        '"cloud_tpu"',
        f"{POOL0}.machineSpec.machineType",
        "is not a machine type",
        schema=False,
        base="tpu-vm",
    ),
    _vx(
        "TPU replicas",
        "replicaCount: 1",
        "replicaCount: 2",
        f"{POOL0}.replicaCount",
        "pool 0 is the chief",
        schema=False,
        base="l4",
    ),
    _vx("timeout", '"7200s"', '"120m"', "scheduling.timeout", "'120m' is not a duration"),
    _vx("strategy", '"SPOT"', '"CHEAP"', "scheduling.strategy", "found 'CHEAP'", base="h100-spot"),
    _vx(
        "env as a map",
        '    env:\n    - name: "A"\n      value: "1"\n    - name: "B"\n      value: "on"\n',
        '    env: {A: "1"}\n',
        f"{POOL0}.containerSpec.env",
        "expected a list",
        base="vertex-only",
    ),
    _vx(
        "env number",
        '      value: "1"',
        "      value: 1",
        f"{POOL0}.containerSpec.env[0].value",
        "expected text",
        base="vertex-only",
    ),
    _vx(
        "no machine",
        '- machineSpec:\n    machineType: "n1-standard-8"\n  replicaCount: 1',
        "- replicaCount: 1",
        f"{POOL0}.machineSpec",
        "is missing",
        schema=False,
        base="one-cpu",
    ),
    _vx("empty pool", "workerPoolSpecs:\n", "workerPoolSpecs:\n- {}\n", POOL0, "is empty: pool 0", base="one-cpu"),
    _vx(
        "labels in the file",
        "workerPoolSpecs:",
        "labels: {a: b}\nworkerPoolSpecs:",
        "labels",
        "'labels' is not a key here",
    ),
    _vx(
        "disk",
        "bootDiskSizeGb: 200",
        "bootDiskSizeGb: 20",
        f"{POOL0}.diskSpec.bootDiskSizeGb",
        "20: expected 100",
        schema=False,
        base="disks",
    ),
    _vx(
        "bucket",
        '"gs://my-bucket/mnist"',
        '"my-bucket"',
        "baseOutputDirectory.outputUriPrefix",
        "is not a path",
        schema=False,
    ),
    _other("tfjob ps", "trio.tfjob", "    PS:", "    ps:", "spec.tfReplicaSpecs.ps", "the operator reads it as PS"),
    _other(
        "tfjob container",
        "one-cpu.tfjob",
        'name: "tensorflow"',
        'name: "main"',
        "spec.tfReplicaSpecs.Chief.template.spec.containers",
        "one must be called tensorflow",
    ),
    _other(
        "tfjob version",
        "one-cpu.tfjob",
        "kubeflow.org/v1",
        "kubeflow.org/v1beta2",
        "apiVersion",
        "expected kubeflow.org/v1",
    ),
    _other(
        "tfjob chiefs",
        "trio.tfjob",
        "      replicas: 1",
        "      replicas: 2",
        "spec.tfReplicaSpecs.Chief.replicas",
        "there is one Chief",
    ),
    _other(
        "tfjob restart",
        "one-cpu.tfjob",
        '"OnFailure"',
        '"Sometimes"',
        "spec.tfReplicaSpecs.Chief.restartPolicy",
        "expected Always",
    ),
    _other(
        "tfjob name", "one-cpu.tfjob", '  name: "mnist', '  name: "1mnist', "metadata.name", "is not a Kubernetes name"
    ),
    _other(
        "tfjob tag",
        "one-cpu.tfjob",
        "@sha256:" + "a" * 64,
        "",
        "spec.tfReplicaSpecs.Chief.template.spec.containers[0].image",
        "is a tag",
    ),
    _other(
        "tfjob GPUs",
        "gpu-trio.tfjob",
        "nvidia.com/gpu: 2",
        'nvidia.com/gpu: "0.5"',
        "spec.tfReplicaSpecs.Chief.template.spec.containers[0].resources.limits.nvidia.com/gpu",
        "GPUs are whole",
    ),
    _other(
        "jobset restart",
        "one-cpu.jobset",
        '"Never"',
        '"Always"',
        "spec.replicatedJobs[0].template.spec.template.spec.restartPolicy",
        "a Job takes Never or OnFailure",
    ),
    _other(
        "jobset success",
        "trio.jobset",
        '- "chief"',
        '- "boss"',
        "spec.successPolicy.targetReplicatedJobs[0]",
        "'boss' is none of",
    ),
    _other(
        "jobset typo",
        "one-cpu.jobset",
        "    replicas: 1",
        "    replica: 1",
        "spec.replicatedJobs[0].replica",
        "is not a key here",
    ),
    _other(
        "pod mount",
        "nfs.pods",
        '    volumeMounts:\n    - name: "results"',
        '    volumeMounts:\n    - name: "other"',
        "spec.containers[0].volumeMounts[0].name",
        "not among the Pod's volumes",
    ),
    _other("pod typo", "one-cpu.pods", "restartPolicy:", "restartpolicy:", "spec.restartpolicy", "is not a key here"),
    _other("kind", "one-cpu.pods", '"Pod"', '"Pods"', "kind", "is not a kind that imgtool knows"),
    _other(
        "cache size",
        "eci-trio.eci",
        "imageCacheSize: 60",
        "imageCacheSize: 6",
        "spec.imageCacheSize",
        "6: expected 20 to 32768",
    ),
    _other(
        "cache days",
        "eci-trio.eci",
        "retentionDays: 30",
        "retentionDays: 0",
        "spec.retentionDays",
        "0: expected 1 to 65536",
    ),
    _other(
        "driver",
        "eci-trio.eci",
        '"tesla=550"',
        '"550"',
        "metadata.annotations.k8s.aliyun.com/eci-gpu-driver-version",
        "expected tesla=MAJOR",
    ),
    _other(
        "compose typo",
        "one-cpu.compose",
        "    image:",
        "    imagen: x\n    image:",
        "services.master.imagen",
        "is not a key here",
    ),
    _other(
        "compose GPUs",
        "limits.compose",
        "          - driver:",
        "          - device_ids: [a]\n            driver:",
        "services.worker-0.deploy.resources.reservations.devices[0].device_ids",
        "does not go with count",
    ),
    _other(
        "compose capability",
        "limits.compose",
        '            capabilities:\n            - "gpu"\n',
        "",
        "services.worker-0.deploy.resources.reservations.devices[0]",
        "'capabilities' is missing",
    ),
    _other(
        "tf-config index",
        "vms.tf-config",
        "      index: 0",
        "      index: 7",
        "master-0.TF_CONFIG.task.index",
        "the cluster has 1 of chief",
    ),
    _other(
        "tf-config port",
        "vms.tf-config",
        '"vm-1:2222"',
        '"vm-1"',
        "master-0.TF_CONFIG.cluster.chief[0]",
        "is not HOST:PORT",
    ),
)
