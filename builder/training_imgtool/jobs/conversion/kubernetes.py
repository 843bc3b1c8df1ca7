"""Objects of Kubernetes as roles and a job: TFJob, JobSet, batch Job."""

from __future__ import annotations

import re

from training_imgtool.jobs.conversion.source import (
    OWN_VARIABLES,
    ROLES,
    Source,
    as_text,
    duration,
    plain_text,
    role_of,
    unescaped,
    with_times,
    without_empty,
)
from training_imgtool.jobs.kubernetes import QUEUE_LABEL
from training_imgtool.jobs.model import KEY, Document, count_of, without_none
from training_imgtool.jobs.tables import gpu_label
from training_imgtool.jobs.yamlio import read_table
from training_imgtool.spec.model import Role
from training_imgtool.spec.targets import Target

Parts = tuple[Source, str | None, Target, dict[Role, Document], Document]
"""A document with what is left of it, the spec's name, the target, the roles and the job."""
_APP = "app.kubernetes.io/"
_GKE = "cloud.google.com/"
_PRIORITY = "kueue.x-k8s.io/priority-class"


def _identity(source: Source) -> tuple[str | None, Document]:
    """Takes the name, the namespace and the labels of an object."""
    labels = source.take("metadata", "labels") or {}
    name, key = source.take("metadata", "name"), labels.pop(KEY, None)
    title = labels.pop(f"{_APP}name", None) or (name and re.sub(r"[^a-z0-9]+", "-", str(name)).strip("-"))
    for word in ("instance", "managed-by"):
        labels.pop(_APP + word, None)
    by_key = key and name == f"{re.sub(r'[._]', '-', str(title))}-{key}"
    job = {
        "id": None if by_key else name,
        "namespace": source.take("metadata", "namespace"),
        "queue": labels.pop(QUEUE_LABEL, None),
        "queue_priority": labels.pop(_PRIORITY, None),
        "labels": labels,
    }
    source.take("apiVersion")
    return title, job


def read_tfjob(source: Source) -> Parts:
    """Reads a TFJob."""
    title, job = _identity(source)
    policy = source.sub("spec", "runPolicy")
    policy.drop("Running", "cleanPodPolicy")
    times = {
        "max_running": duration(policy.take("activeDeadlineSeconds")),
        "restarts": policy.take("backoffLimit"),
        "keep_finished": duration(policy.take("ttlSecondsAfterFinished")),
        "max_wait": duration(policy.take("schedulingPolicy", "scheduleTimeoutSeconds")),
    }
    roles = {}
    for kind in list(source.at("spec", "tfReplicaSpecs") or {}):
        replica = source.sub("spec", "tfReplicaSpecs", kind)
        replica.drop("OnFailure", "restartPolicy")
        count = replica.take("replicas")
        roles[role_of(kind)] = {"count": 1 if count is None else count, **_template(replica, job, times)}
    return (source, title, Target.TFJOB, roles, with_times(job, times))


def read_jobset(source: Source) -> Parts:
    """Reads a JobSet: each of its jobs is a role."""
    name = source.at("metadata", "name")
    title, job = _identity(source)
    job["exclusive_topology"] = source.take("metadata", "annotations", "alpha.jobset.sigs.k8s.io/exclusive-topology")
    of = source.sub("spec")
    times: Document = {"keep_finished": duration(of.take("ttlSecondsAfterFinished"))}
    times["restarts"] = of.take("failurePolicy", "maxRestarts")
    of.drop({"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True}, "network")
    jobs = of.at("replicatedJobs") or []
    leader = next((item.get("name") for item in jobs if item.get("name") in {"chief", "master"}), "worker")
    of.drop({"operator": "All", "targetReplicatedJobs": [leader]}, "successPolicy")
    roles = {}
    for index in range(len(jobs)):
        replicated = of.sub("replicatedJobs", index)
        word = str(replicated.take("name"))
        role = Role.MASTER if len(jobs) == 1 and word not in ROLES else role_of(word)
        count = replicated.take("replicas") or 1
        inner = replicated.sub("template", "spec")
        inner.drop({"rules": [{"succeededIndexes": "0"}]}, "successPolicy")
        evicted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        inner.drop({"rules": [evicted]}, "podFailurePolicy")
        of_role = _indexed(inner, job, times)
        if "tpu" in of_role:
            own = replicated.sub("template", "metadata", "annotations")
            own.drop(f"{_GKE}gke-nodepool", "alpha.jobset.sigs.k8s.io/exclusive-topology")
        else:
            of_role["count"] *= count
        roles[role] = of_role
    return (source, title, Target.JOBSET, roles, with_times(job, times))


def read_batch_job(source: Source) -> Parts:
    """Reads a batch Job, which becomes the only role of a JobSet."""
    title, job = _identity(source)
    of = source.sub("spec")
    times: Document = {"keep_finished": duration(of.take("ttlSecondsAfterFinished")), "restarts": None}
    if of.at("backoffLimit"):
        times["restarts"] = of.take("backoffLimit")
    of_role = _indexed(of, job, times)
    role = Role.WORKER if of_role["count"] > 1 or "tpu" in of_role else Role.MASTER
    return (source, title, Target.JOBSET, {role: of_role}, with_times(job, times))


def _indexed(of: Source, job: Document, times: Document) -> Document:
    """Takes a Job's Pods as one role."""
    count, parallel = of.take("completions"), of.at("parallelism")
    of.drop(count, "parallelism")
    of.drop("Indexed", "completionMode")
    of.drop(0, "backoffLimit")
    times["max_running"] = duration(of.take("activeDeadlineSeconds")) or times.get("max_running")
    role = _template(of, job, times)
    return {**role, "count": 1 if "tpu" in role else count or parallel or 1}


def _template(of: Source, job: Document, times: Document) -> Document:
    """Takes a Pod template as a role; what is the same for all roles goes into the job."""
    labels = of.sub("template", "metadata", "labels")
    for key in list(labels.data or {}):
        if key.startswith(_APP) or key == KEY or job["labels"].get(key) == labels.data[key]:
            labels.take(key)
    annotations = of.sub("template", "metadata", "annotations")
    annotations.drop("false", "sidecar.istio.io/inject")
    for word in ("required", "preferred"):
        job[f"{word}_topology"] = annotations.take(f"kueue.x-k8s.io/podset-{word}-topology") or job.get(
            f"{word}_topology"
        )
    pod = of.sub("template", "spec")
    pod.drop("Never", "restartPolicy")
    pod.drop("OnFailure", "restartPolicy")
    role = _container(pod, job)
    job["service_account"] = pod.take("serviceAccountName")
    job["image_pull_secrets"] = [item["name"] for item in pod.take("imagePullSecrets") or []]
    job["priority_class"] = pod.take("priorityClassName")
    return {**role, **_nodes(pod, role, times)}


def _container(pod: Source, job: Document) -> Document:
    box = pod.sub("containers", 0)
    for key in ("name", "image"):
        box.take(key)
    box.drop("IfNotPresent", "imagePullPolicy")
    box.drop([{"containerPort": 2222, "name": "tfjob-port"}], "ports")
    command, args = (unescaped(box.take(key)) for key in ("command", "args"))
    env = box.at("env") or []
    own = [item for item in env if "value" in item or item["name"] in OWN_VARIABLES]
    job["env"] = {item["name"]: plain_text(item["value"]) for item in own if item["name"] not in OWN_VARIABLES}
    env[:] = [item for item in env if item not in own]
    limits = box.take("resources", "limits") or {}
    box.drop(limits, "resources", "requests")
    gpus, chips = limits.pop("nvidia.com/gpu", None), limits.pop("google.com/tpu", None)
    role: Document = {"command": command or None, "args": args, "cpus": as_text(limits.pop("cpu", None))}
    role["memory"] = as_text(limits.pop("memory", None))
    role["gpus"] = {"type": "any", "count": count_of(gpus)} if gpus else None
    role["tpu"] = {"chips": count_of(chips)} if chips else None
    box.data.setdefault("resources", {})["limits"] = limits
    _volume(pod, box, job)
    return without_empty(role)


def _volume(pod: Source, box: Source, job: Document) -> None:
    volumes = {item["name"]: item for item in pod.at("volumes") or []}
    mounts = box.at("volumeMounts") or []
    for mount in list(mounts):
        volume, wanted = volumes.get(mount["name"], {}), {"name", "mountPath"}
        claim, nfs = volume.get("persistentVolumeClaim", {}), volume.get("nfs", {})
        if volume.get("emptyDir") == {"medium": "Memory"} and mount["mountPath"] == "/dev/shm":  # noqa: S108
            found = True
        elif set(mount) == wanted and (set(claim) == {"claimName"} or set(nfs) == {"server", "path"}):
            named = {"claim": claim.get("claimName"), "nfs_server": nfs.get("server"), "nfs_path": nfs.get("path")}
            made = without_none({"mount": mount["mountPath"], **named})
            found = job.setdefault("volume", made) == made
        else:
            found = False
        if found:
            mounts.remove(mount)
            pod.at("volumes").remove(volume)


def _nodes(pod: Source, role: Document, times: Document) -> Document:
    """Takes the labels and taints of nodes: devices, capacity, reservations; the rest as it is."""
    selector, made = pod.take("nodeSelector") or {}, Document()
    tolerated = pod.take("tolerations") or []
    if "gpus" in role:
        tolerated = [item for item in tolerated if item != {"key": "nvidia.com/gpu", "operator": "Exists"}]
        types = {label: name for name, label in read_table("machines/gke.yaml")["gpus"].items()}
        label = selector.get(f"{_GKE}gke-accelerator")
        kind = types.get(label) or selector.get("nvidia.com/gpu.product")
        if kind:
            made["gpus"] = {**role["gpus"], "type": kind}
            selector.pop(f"{_GKE}gke-accelerator" if label else "nvidia.com/gpu.product")
    if "tpu" in role:
        tolerated = [item for item in tolerated if item != {"key": "google.com/tpu", "operator": "Exists"}]
        kind, topology = (selector.pop(f"{_GKE}gke-tpu-{word}", None) for word in ("accelerator", "topology"))
        made["tpu"] = without_none({"type": kind, "topology": topology})
        series = "ct6e-standard" if kind == "tpu-v6e-slice" else "ct5lp-hightpu"
        made["machine"] = f"{series}-{role['tpu']['chips']}t" if role["tpu"]["chips"] != 4 else None
    for strategy, word in (("SPOT", "gke-spot"), ("FLEX_START", "gke-flex-start")):
        if selector.pop(_GKE + word, None):
            times["strategy"] = strategy
            taint = {"key": _GKE + word, "operator": "Equal", "value": "true", "effect": "NoSchedule"}
            tolerated = [item for item in tolerated if item != taint]
    name, project = (selector.pop(f"{_GKE}reservation-{word}", None) for word in ("name", "project"))
    made["reservation"] = f"projects/{project}/reservations/{name}" if project else name
    if selector and "gpus" in made:  # labels of one's own choose alone
        selector |= gpu_label(made["gpus"]["type"])
        made["gpus"]["type"] = "any"
    return without_empty({**made, "node_selector": selector, "tolerations": tolerated})
