"""A sample of the corpus of faults: keys misspelt, retyped, moved or given twice, each named at its line."""

from __future__ import annotations

import pytest
import yaml

from tests.jobs import key_faults
from tests.jobs.specs import text_of

FILES = ("everything.ai-platform", "trio.vertex", "one-cpu.jobset", "one-cpu.tfjob", "one-cpu.pods", "eci-one.eci",
         "one-cpu.trainjob", "limits.compose", "alike.skypilot")  # fmt: skip
VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: tf}
spec:
  minAvailable: 2
  policies: [{event: PodEvicted, action: RestartJob}]
  tasks:
  - {name: worker, replicas: 2, template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: a/b:1}]}}}
"""
QUEUE = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: gpus}
spec:
  cohortName: all
  resourceGroups:
  - {coveredResources: [cpu], flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 9}]}]}
"""


@pytest.mark.parametrize("name", [*FILES, VOLCANO, QUEUE], ids=lambda name: name.partition("\n")[0])
def test_each_fault_is_named_at_its_line(name: str) -> None:
    text = name if "\n" in name else text_of(name)
    document = yaml.serialize(next(yaml.compose_all(text, Loader=yaml.SafeLoader)), Dumper=yaml.SafeDumper)
    counts = key_faults.count(document, step=2)
    assert sum(map(len, counts.values())) > 10
    for kind in key_faults.KINDS:
        missed = [fault.path for fault in counts[kind, False]]
        assert len(missed) <= 0.05 * len(counts[kind, True] + missed), (kind, missed)
