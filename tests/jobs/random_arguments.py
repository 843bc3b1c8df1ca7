"""Random argument lists for the roles of a spec, and what each role receives from a job file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from tests.jobs.specs import spec
from training_imgtool.jobs import JobOptions
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.model.job import Eci
from training_imgtool.model.spec import ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target

M, W, P = Role.MASTER, Role.WORKER, Role.PS
WORDS = [
    "--rate", "--rate=0.1", "1e-3", "y", "on", "null", "", " ", "a b", "$(HOME)", "$HOME", "${X}", "$$", "$", "`id`",
    "'", '"',
    "\\", "#x", "a: b", "- a", "{}", "[1]", "*", "~", "!", "&a", "|", ">", "%", "@", "é", "🚀", "0755", "2.10",
    "12:30", "^:^x",
    ",", "a,b;c:d", "--", "-", "\n", "x\ny", "\t", "--job-dir=x", "--job-directory", "<<", "---", "1_000", ".5", "0o17",
    "$(TF_CONFIG)", "$$(A)", "$(", "$)", "$(a b)", "$(AIP_MODEL_DIR)", "%s", "\\n", "{{x}}", "<x>",
]  # fmt: skip
CHARACTERS = "ab-=,^$'\"\\ \t\n#~{}()é🚀*!:;%|&<>"
PREFIXES = {M: "master", W: "worker", P: "parameterServer"}  # AI Platform's keys
NAMES = {"chief": M, "master": M, "worker": W, "ps": P}  # TensorFlow's, and those of Compose's services
HOSTS = {M: ("master=vm-1",), W: ("worker=vm-2", "worker=vm-3"), P: ("ps=vm-4",)}


class Asked(NamedTuple):
    """A spec, and the arguments that each of its roles must receive."""

    spec: ImageSpec
    arguments: dict[Role, list[str]]

    def options(self, file: str) -> JobOptions:
        hosts = ",".join(host for role in self.arguments for host in HOSTS[role])
        return JobOptions(file=file, hosts=parse_hosts(hosts))


def argument_lists(seed: int, count: int) -> list[list[str]]:
    """Lists of words that shells, YAML, gcloud and Kubernetes know, and of words made of their characters."""
    chance = random.Random(seed)
    made = ["".join(chance.choices(CHARACTERS, k=chance.randint(1, 6))) for _ in range(count)]
    return [chance.choices([*WORDS, *made], k=chance.randint(1, 8)) for _ in range(count)]


def asked(seed: int, count: int, target: Target) -> Iterator[Asked]:
    """Specs with random arguments: of a lone role, of a cluster, and of roles with arguments of their own."""
    chance = random.Random(f"{seed} {target}")
    lists = zip(argument_lists(seed, count), argument_lists(seed + 1000, count), strict=True)
    for number, (args, own) in enumerate(lists):
        roles = {M: RoleSpec(machine=_machine(target))}
        if target is not Target.SKYPILOT and chance.random() < 0.3:
            roles[W] = RoleSpec(machine=_machine(target), count=2, args=tuple(own) if chance.random() < 0.5 else None)
            roles[P] = RoleSpec(machine=_machine(target), args=() if chance.random() < 0.2 else None)
        wanted = {role: args if of.args is None else list(of.args) for role, of in roles.items()}
        yield Asked(spec(roles, args=tuple(args), id=f"job{number}", eci=Eci(image_cache="auto")), wanted)


def _machine(target: Target) -> str | None:
    return None if target in {Target.ECI, Target.SKYPILOT} else "n1-standard-8"


def received(target: Target, text: str) -> dict[Role, list[str]]:
    """The arguments that the service starts each role's trainer with, from the text of a YAML file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return received_from(target, [document for document in yaml.load_all(text, Loader=loader) if document])


def received_from(target: Target, documents: list[Any]) -> dict[Role, list[str]]:
    """As `received`, from a file's documents or an API's body."""
    if target is Target.AI_PLATFORM:
        return _from_training_input(documents[0]["trainingInput"])
    if target is Target.VERTEX:
        return from_pools(documents[0]["workerPoolSpecs"])
    if target is Target.COMPOSE:
        return from_services(documents[0]["services"])
    return from_objects(documents)


def _from_training_input(training: Mapping[str, Any]) -> dict[Role, list[str]]:
    of_roles = {role: training.get(f"{prefix}Config") for role, prefix in PREFIXES.items()}
    own = any("containerArgs" in config for config in of_roles.values() if config)
    every = [] if own else training.get("args", [])
    return {role: list(config.get("containerArgs", every)) for role, config in of_roles.items() if config is not None}


def from_pools(pools: list[Any]) -> dict[Role, list[str]]:
    """What the pools of a CustomJobSpec pass on."""
    return {role: list(pool["containerSpec"].get("args", [])) for role, pool in zip(PREFIXES, pools, strict=False)}


def from_services(services: Mapping[str, Any]) -> dict[Role, list[str]]:
    """What Compose passes on to the first replica of each role, `$$` being `$`."""
    first = {name.removesuffix("-0"): service for name, service in services.items()}
    commands = {NAMES[name]: service.get("command") or [] for name, service in first.items() if name in NAMES}
    return {role: [arg.replace("$$", "$") for arg in command] for role, command in commands.items()}


def from_objects(documents: list[Any]) -> dict[Role, list[str]]:
    """What a kubelet passes on to the first replica of each role."""
    return {role: expanded_args(pod["containers"][0]) for document in documents for role, pod in _pods(document)}


def _pods(document: Any) -> Iterator[tuple[Role, Any]]:
    of = document["spec"]
    if document["kind"] == "TFJob":
        for name, replica in of["tfReplicaSpecs"].items():
            yield NAMES[name.lower()], replica["template"]["spec"]
    elif document["kind"] in {"JobSet", "TrainingRuntime"}:
        for job in (of["template"]["spec"] if "template" in of else of)["replicatedJobs"]:
            yield NAMES[job["name"]], job["template"]["spec"]["template"]["spec"]
    elif document["kind"] == "Pod":
        yield Role(document["metadata"]["labels"]["app.kubernetes.io/component"]), of


def expanded_args(container: Mapping[str, Any]) -> list[str]:
    """A container's arguments as its kubelet expands them from its environment."""
    environment: dict[str, str] = {}
    for variable in container.get("env", []):
        environment[variable["name"]] = expanded(variable.get("value", ""), environment)
    return [expanded(arg, environment) for arg in container.get("args", [])]


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` as Kubernetes expands it (k8s.io/kubernetes third_party/forked/golang/expansion)."""
    made, at = "", 0
    while (dollar := text.find("$", at)) >= 0 and dollar + 1 < len(text):
        made += text[at:dollar]
        after = text[dollar + 1]
        end = text.find(")", dollar) if after == "(" else -1
        if after == "(" and end >= 0:
            name = text[dollar + 2 : end]
            made, at = made + environment.get(name, f"$({name})"), end + 1
        else:
            made, at = made + ("$" if after == "$" else f"${after}"), dollar + 2
    return made + text[at:]
