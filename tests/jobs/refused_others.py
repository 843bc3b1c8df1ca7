"""Specs that the other targets would refuse: name, target, spec, the key that is wrong, part of the message."""

from __future__ import annotations

from tests.jobs.specs import BARE, CLAIM, KEPT, ONE, RUNTIME, TPU, spec
from training_imgtool.model.job import Eci, Scheduling, SecretRef, Slurm, Volume
from training_imgtool.model.spec import Gpus, ImageSpec, Role, RoleSpec, Toleration
from training_imgtool.model.targets import Target

M, P = Role.MASTER, Role.PS
TF, JS, TJ, PO, EC = Target.TFJOB, Target.JOBSET, Target.TRAINJOB, Target.PODS, Target.ECI
AI, CO, TC, SK, SL = Target.AI_PLATFORM, Target.COMPOSE, Target.TF_CONFIG, Target.SKYPILOT, Target.SLURM

OTHERS: list[tuple[str, Target, ImageSpec, str, str]] = [
    ("kube name", TF, spec(BARE, id="My_Job"), "job.id", "'My_Job' is not a Kubernetes name"),
    ("long name", PO, spec(BARE, id="a" * 60), "job.id", "has 60 characters"),
    ("kube label", TF, spec(BARE, labels={"team": "a b"}), "job.labels.team", "'a b' is not a label's value"),
    (
        "kube account",
        TF,
        spec(BARE, service_account="a@b.com"),
        "job.service_account",
        "'a@b.com' is not a Kubernetes name",
    ),
    ("kube namespace", JS, spec(BARE, namespace="My NS"), "job.namespace", "'My NS' is not a Kubernetes name"),
    (
        "kube secret",
        PO,
        spec(BARE, image_pull_secrets=("A",)),
        "job.image_pull_secrets[0]",
        "'A' is not a Kubernetes name",
    ),
    *(
        (f"volume {target} {kind}", target, spec(BARE, volumes=(volume,)), "job.volumes[0]", message)
        for target, kind, volume, message in (
            (PO, "none", Volume(mount="/x"), "expected one of claim, nfs_server with nfs_path"),
            (PO, "two", Volume(mount="/x", claim="c", host_path="/y"), "expected one of"),
            (PO, "half", Volume(mount="/x", nfs_server="s"), "expected one of"),
            (EC, "host", Volume(mount="/x", host_path="/y"), "eci cannot mount host_path"),
            (CO, "bucket", Volume(mount="/x", bucket="gs://bkt"), "compose cannot mount bucket"),
            (SL, "claim", Volume(mount="/x", claim="c"), "slurm cannot mount claim"),
            (AI, "nfs", Volume(mount="/x", nfs_server="s", nfs_path="/p"), "ai-platform cannot mount nfs_server"),
        )
    ),
    (
        "mounted twice",
        PO,
        spec(BARE, volumes=(CLAIM, CLAIM)),
        "job.volumes[1].mount",
        "another volume uses this path",
    ),
    ("many", JS, spec({M: RoleSpec(), Role.WORKER: RoleSpec(count=4000)}), "roles", "4001 replicas: the variable that"),
    ("secrets", Target.VERTEX, spec(ONE, secrets=KEPT["secrets"]), "job.secrets", "vertex has none"),
    ("secret name", JS, spec(BARE, secrets={"A": SecretRef()}), "job.secrets.A.name", "is missing: expected the name"),
    ("secret key", JS, spec(BARE, secrets={"A": SecretRef(name="s", key="/")}), "job.secrets.A.key", "'/': expected"),
    (
        "secrets' file",
        SL,
        spec(BARE, secrets={"A": SecretRef()}),
        "job.secrets_file",
        "is missing: slurm does not store secrets",
    ),
    (
        "set twice",
        JS,
        spec(BARE, env={"A": "1"}, secrets={"A": SecretRef(name="s")}),
        "job.secrets.A",
        "is also in job.env",
    ),
    ("kube cpus", TF, spec({M: RoleSpec(cpus="four")}), "roles.master.cpus", "'four' is not a quantity"),
    (
        "kube effect",
        TF,
        spec({M: RoleSpec(tolerations=(Toleration(effect="Never"),))}),
        "roles.master.tolerations[0].effect",
        "'Never': expected NoSchedule",
    ),
    (
        "kube operator",
        TF,
        spec({M: RoleSpec(tolerations=(Toleration(operator="In"),))}),
        "roles.master.tolerations[0].operator",
        "'In': expected Exists or Equal",
    ),
    ("kube master", JS, spec({P: RoleSpec()}), "roles", "expected a master or workers"),
    ("namespace length", PO, spec(BARE, namespace="a" * 64), "job.namespace", "has 64 characters"),
    (
        "selector key",
        TF,
        spec({M: RoleSpec(node_selector={"a b": "c"})}),
        "roles.master.node_selector.a b",
        "'a b' is not a label's name",
    ),
    ("label prefix", PO, spec(BARE, labels={"a..b/c": "x"}), "job.labels.a..b/c", "'a..b/c' is not a label's name"),
    (
        "own label",
        PO,
        spec(BARE, labels={"app.kubernetes.io/instance": "other"}),
        "job.labels.app.kubernetes.io/instance",
        "imgtool sets this label",
    ),
    (
        "int32",
        JS,
        spec(BARE, scheduling=Scheduling(restarts=2**31)),
        "job.scheduling.restarts",
        "expected 0 to 2147483647",
    ),
    (
        "no time",
        PO,
        spec(BARE, scheduling=Scheduling(max_running="0s")),
        "job.scheduling.max_running",
        "expected 1s to",
    ),
    ("index", JS, spec(BARE, env={"TF_TASK_INDEX": "1"}), "job.env.TF_TASK_INDEX", "imgtool sets this variable"),
    (
        "toleration",
        PO,
        spec({M: RoleSpec(tolerations=(Toleration(value="x"),))}),
        "roles.master.tolerations[0].operator",
        "a toleration without a key",
    ),
    (
        "relative nfs",
        PO,
        spec(BARE, volumes=(Volume(mount="/x", nfs_server="s", nfs_path="p"),)),
        "job.volumes[0].nfs_path",
        "'p': expected an absolute path",
    ),
    ("queue", JS, spec(BARE, queue="Team A"), "job.queue", "'Team A' is not a Kubernetes name"),
    ("exclusive", JS, spec(BARE, exclusive_topology="a b"), "job.exclusive_topology", "is not a label's name"),
    ("container", TC, spec(BARE, id="a b"), "job.id", "'a b' is not a container's name"),
    ("kube tpu", TF, spec(TPU), "roles.worker", "tfjob has no TPU roles"),
    ("kube runtime", JS, spec(ONE, **RUNTIME), "job.runtime_version", "jobset has none"),
    (
        "eci type",
        EC,
        spec({M: RoleSpec(machine="n1-standard-8")}),
        "roles.master.machine",
        "'n1-standard-8' is not an ECS type",
    ),
    (
        "eci six",
        EC,
        spec({M: RoleSpec(machine=",".join(["ecs.c6.large"] * 6))}),
        "roles.master.machine",
        "6 ECS types: expected 5",
    ),
    (
        "eci mixed",
        EC,
        spec({M: RoleSpec(machine="ecs.c6.large,ecs.gn6i-c4g1.xlarge")}),
        "roles.master.machine",
        "mixes ECS types with and without GPUs",
    ),
    (
        "eci no GPU",
        EC,
        spec({M: RoleSpec(machine="ecs.c6.large", gpus=Gpus(type="T4"))}),
        "roles.master.machine",
        "has no GPU, but master needs 1",
    ),
    (
        "eci driver",
        EC,
        spec({M: RoleSpec(machine="ecs.gn8is.2xlarge", gpus=Gpus(type="L20"))}, eci=Eci(driver="470")),
        "job.eci.driver",
        "'470' is not a driver of",
    ),
    ("compose memory", CO, spec({M: RoleSpec(memory="16GiB")}), "roles.master.memory", "'16GiB' is not a size"),
    ("compose cpus", CO, spec({M: RoleSpec(cpus="many")}), "roles.master.cpus", "'many' is not a number of CPUs"),
    ("compose project", CO, spec(ONE, id="My Job"), "job.id", "'My Job' is not a Compose project"),
    ("compose folder", CO, spec(ONE, job_dir="a:b"), "job.job_dir", "a folder with ':' cannot be mounted"),
    ("hosts", TC, spec(BARE), "roles", "tf-config needs the names of the machines"),
    ("sky roles", SK, spec(BARE), "roles.worker", "nodes are all alike: expected one role, found master and worker"),
    ("sky name", SK, spec(ONE, id="-x"), "job.id", " is not a task's name"),
    ("sky env", SK, spec(ONE, env={"CLUSTER_TASKS": "x"}), "job.env.CLUSTER_TASKS", "imgtool sets this variable"),
    ("slurm name", SL, spec(ONE, id="a b"), "job.id", "'a b': expected letters"),
    ("slurm partition", SL, spec(ONE, slurm=Slurm(partition="a\nb")), "job.slurm.partition", "expected letters"),
    ("slurm folder", SL, spec(ONE, job_dir="out"), "job.job_dir", "'out': expected an absolute folder"),
    (
        "slurm memory",
        SL,
        spec({M: RoleSpec(memory="16GB")}),
        "roles.master.memory",
        "'16GB' is not a size",
    ),
]
