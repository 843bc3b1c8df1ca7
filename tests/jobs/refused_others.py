"""Specs that the other targets would refuse: name, target, spec, the key that is wrong, part of the message."""

from __future__ import annotations

from tests.jobs.specs import BARE, ONE, RUNTIME, TPU, spec
from training_imgtool.spec.model import Eci, Gpus, ImageSpec, Role, RoleSpec, Scheduling, Target, Toleration, Volume

M, W = Role.MASTER, Role.WORKER
TF, JS, PO, EC, CO, TC = list(Target)[2:]

OTHERS: list[tuple[str, Target, ImageSpec, str, str]] = [
    ("kube name", TF, spec(BARE, id="My_Job"), "job.id", "'My_Job' is not a Kubernetes name"),
    ("kube name digit", JS, spec(BARE, id="1job"), "job.id", "'1job' is not a Kubernetes name"),
    ("long name", PO, spec(BARE, id="a" * 60), "job.id", "has 60 characters"),
    ("kube label", TF, spec(BARE, labels={"team": "a b"}), "job.labels.team", "'a b' is not a label's value"),
    ("kube label name", TF, spec(BARE, labels={"a b": "x"}), "job.labels.a b", "'a b' is not a label's name"),
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
    (
        "kube duration",
        TF,
        spec(BARE, scheduling=Scheduling(max_running="1h")),
        "job.scheduling.max_running",
        "'1h' is not a duration",
    ),
    ("kube volume", PO, spec(BARE, volume=Volume(mount="/x")), "job.volume", "expected either claim, or nfs_server"),
    (
        "kube both",
        PO,
        spec(BARE, volume=Volume(mount="/x", claim="c", nfs_server="s", nfs_path="/p")),
        "job.volume",
        "expected either",
    ),
    ("kube cpus", TF, spec({M: RoleSpec(cpus="four")}), "roles.master.cpus", "'four' is not a quantity"),
    ("kube memory", TF, spec({M: RoleSpec(memory="16GB")}), "roles.master.memory", "'16GB' is not a quantity"),
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
    (
        "kube exists",
        TF,
        spec({M: RoleSpec(tolerations=(Toleration(operator="Exists", value="x"),))}),
        "roles.master.tolerations[0].value",
        "does not go with",
    ),
    ("kube master", JS, spec({W: RoleSpec()}), "roles", "the role master is missing"),
    ("kube tpu", TF, spec(TPU), "roles.worker", "tfjob has no TPU roles"),
    ("kube runtime", JS, spec(ONE, **RUNTIME), "job.runtime_version", "belongs to AI Platform alone"),
    (
        "eci no type",
        EC,
        spec({M: RoleSpec(gpus=Gpus(type="T4"))}),
        "roles.master.machine",
        "an ECI Pod with a GPU names its ECS types",
    ),
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
        "mixes GPU types",
    ),
    (
        "eci no GPU",
        EC,
        spec({M: RoleSpec(machine="ecs.c6.large", gpus=Gpus(type="T4"))}),
        "roles.master.machine",
        "has no GPU, and master wants 1",
    ),
    (
        "eci driver",
        EC,
        spec({M: RoleSpec(machine="ecs.gn8is.2xlarge", gpus=Gpus(type="L20"))}, eci=Eci(driver="470")),
        "job.eci.driver",
        "'470' is not a driver of",
    ),
    (
        "eci cache",
        EC,
        spec(BARE, eci=Eci(image_cache="yes")),
        "job.eci.image_cache",
        "'yes': expected create, auto, none",
    ),
    ("eci cache size", EC, spec(BARE, eci=Eci(cache_size_gb=10)), "job.eci.cache_size_gb", "10: expected 20 to 32768"),
    (
        "eci retention",
        EC,
        spec(BARE, eci=Eci(retention_days=70000)),
        "job.eci.retention_days",
        "70000: expected 1 to 65536",
    ),
    ("eci node", EC, spec(BARE, eci=Eci(virtual_node="taint")), "job.eci.virtual_node", "'taint': expected label"),
    ("compose memory", CO, spec({M: RoleSpec(memory="16GiB")}), "roles.master.memory", "'16GiB' is not a size"),
    ("compose cpus", CO, spec({M: RoleSpec(cpus="many")}), "roles.master.cpus", "'many' is not a number of CPUs"),
    ("compose project", CO, spec(ONE, id="My Job"), "job.id", "'My Job' is not a Compose project"),
    ("compose volume", CO, spec(ONE, volume=Volume(mount="/x")), "job.volume", "expected either claim"),
    ("compose folder", CO, spec(ONE, job_dir="a:b"), "job.job_dir", "a folder with ':' cannot be mounted"),
    ("compose master", CO, spec({W: RoleSpec()}), "roles", "the role master is missing"),
    ("hosts", TC, spec(BARE), "roles", "the target tf-config needs the machines"),
]
