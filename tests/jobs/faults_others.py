"""Faults in files for the targets that are not Google's."""

from __future__ import annotations

from tests.jobs.fault import other_fault

_LOWEST = "studySpec.parameters[0].doubleValueSpec.minValue"
OTHERS = (
    other_fault(
        "tfjob ps", "trio.tfjob", "    PS:", "    ps:", "spec.tfReplicaSpecs.ps", "the operator reads it as PS"
    ),
    other_fault(
        "study range",
        "tuning.vertex",
        "0.0001",
        "0.5",
        _LOWEST,
        "0.5 is above maxValue 0.1",
    ),
    other_fault(
        "study scale",
        "tuning.vertex",
        "0.0001",
        "0",
        _LOWEST,
        "a logarithmic scale needs more than 0",
    ),
    other_fault(
        "tfjob container",
        "one-cpu.tfjob",
        'name: "tensorflow"',
        'name: "main"',
        "spec.tfReplicaSpecs.Chief.template.spec.containers",
        "one must be called tensorflow",
    ),
    other_fault(
        "tfjob version",
        "one-cpu.tfjob",
        "kubeflow.org/v1",
        "kubeflow.org/v1beta2",
        "apiVersion",
        "expected kubeflow.org/v1",
    ),
    other_fault(
        "tfjob chiefs",
        "trio.tfjob",
        "      replicas: 1",
        "      replicas: 2",
        "spec.tfReplicaSpecs.Chief.replicas",
        "there is one Chief",
    ),
    other_fault(
        "tfjob restart",
        "one-cpu.tfjob",
        '"OnFailure"',
        '"Sometimes"',
        "spec.tfReplicaSpecs.Chief.restartPolicy",
        "expected Always",
    ),
    other_fault(
        "tfjob name", "one-cpu.tfjob", '  name: "mnist', '  name: "1mnist', "metadata.name", "is not a Kubernetes name"
    ),
    other_fault(
        "tfjob tag",
        "one-cpu.tfjob",
        "@sha256:" + "a" * 64,
        "",
        "spec.tfReplicaSpecs.Chief.template.spec.containers[0].image",
        "is a tag",
    ),
    other_fault(
        "tfjob GPUs",
        "gpu-trio.tfjob",
        "nvidia.com/gpu: 2",
        'nvidia.com/gpu: "0.5"',
        "spec.tfReplicaSpecs.Chief.template.spec.containers[0].resources.limits.nvidia.com/gpu",
        "expected a whole number",
    ),
    other_fault(
        "jobset restart",
        "one-cpu.jobset",
        '"Never"',
        '"Always"',
        "spec.replicatedJobs[0].template.spec.template.spec.restartPolicy",
        "a Job takes Never or OnFailure",
    ),
    other_fault(
        "jobset success",
        "trio.jobset",
        '- "chief"',
        '- "boss"',
        "spec.successPolicy.targetReplicatedJobs[0]",
        "'boss' is none of",
    ),
    other_fault(
        "jobset twice",
        "trio.jobset",
        '  - name: "ps"',
        '  - name: "worker"',
        "spec.replicatedJobs[2].name",
        "'worker' appears twice",
    ),
    other_fault(
        "jobset typo",
        "one-cpu.jobset",
        "    replicas: 1",
        "    replica: 1",
        "spec.replicatedJobs[0].replica",
        "is not a key here",
    ),
    other_fault(
        "pod mount",
        "nfs.pods",
        '    volumeMounts:\n    - name: "volume-0"',
        '    volumeMounts:\n    - name: "other"',
        "spec.containers[0].volumeMounts[0].name",
        "not among the Pod's volumes",
    ),
    other_fault(
        "pod typo", "one-cpu.pods", "restartPolicy:", "restartpolicy:", "spec.restartpolicy", "is not a key here"
    ),
    other_fault(
        "cache size",
        "eci-trio.eci",
        "imageCacheSize: 60",
        "imageCacheSize: 6",
        "spec.imageCacheSize",
        "6: expected 20 to 32768",
    ),
    other_fault(
        "cache days",
        "eci-trio.eci",
        "retentionDays: 30",
        "retentionDays: 0",
        "spec.retentionDays",
        "0: expected 1 to 65536",
    ),
    other_fault(
        "driver",
        "eci-trio.eci",
        '"tesla=550"',
        '"550"',
        "metadata.annotations.k8s.aliyun.com/eci-gpu-driver-version",
        "expected tesla=MAJOR",
    ),
)
