"""What `oci.direct.base_files` says of the matrix' bases, compared with those that are within reach."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from functools import partial

from training_imgtool.base.reference import parse_repository
from training_imgtool.base.settings import from_environment
from training_imgtool.oci.direct import base_files
from training_imgtool.oci.direct.base_files import BaseReader
from training_imgtool.oci.direct.tree import Kind, Node
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.registry.connect import Registries


def _bases(address: str) -> Iterator[str]:
    """The bases in the registry, as REPOSITORY:TAG below Docker Hub."""
    for repository in ("library/python", "library/debian", "library/ubuntu", "nvidia/cuda"):
        try:
            with urllib.request.urlopen(f"http://{address}/v2/{repository}/tags/list", timeout=10) as answer:
                yield from (f"{repository}:{tag}" for tag in json.load(answer)["tags"] or ())
        except OSError:
            continue


def test_the_facts_are_true(registry_address: str, services_env: dict[str, str]) -> None:
    """What the files of a layer are, this machine remembers; how they are read is seen in tests/direct."""
    compared = 0
    settings = from_environment(services_env)
    with Registries(settings) as registries:
        for base in _bases(registry_address):
            facts = base_files.find_matrix_tree(f"docker.io/{base}")
            if facts is None:
                continue
            repository = parse_repository(f"{registry_address}/{base.partition(':')[0]}")
            client = registries.at(repository)
            layers = client.manifest(repository.tag(base.partition(":")[2]), "linux/amd64").layers
            reader = BaseReader(LayerCache(settings.cache / "layers"))
            files = reader.files(None, lambda found=layers: found, partial(client.blob, repository))  # type: ignore[misc]
            _compare(facts, files.sources[-1](), base)
            compared += 1
    assert compared


def _compare(facts: Node, real: Node, where: str) -> None:
    for name, node in real.children.items():
        if facts.closed or node.kind is Kind.WHITEOUT:
            return
        fact = facts.children.get(name)
        assert fact is not None, f"{where}/{name} is there, and the facts say that it is not"
        if fact.kind is not Kind.UNKNOWN:
            assert (node.kind, node.attributes) == (fact.kind, fact.attributes), f"{where}/{name}"
            _compare(fact, node, f"{where}/{name}")
    unsure = {name for name, node in facts.children.items() if node.kind is Kind.UNKNOWN}
    assert facts.children.keys() - unsure <= real.children.keys(), where
