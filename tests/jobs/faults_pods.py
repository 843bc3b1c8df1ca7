"""Faults in Pods, Jobs and Services, each a change of a good file; test_kubernetes_server.py asks the API server."""

from __future__ import annotations

_TEMPLATE = """\
{indent}containers:
{indent}- name: main
{indent}  image: busybox
{indent}  args: [a]
{indent}  env: [{{name: A, value: "1"}}]
{indent}  ports: [{{containerPort: 80, name: http}}]
{indent}  resources: {{limits: {{cpu: 500m, memory: 4Gi}}, requests: {{cpu: 100m}}}}
{indent}  volumeMounts: [{{name: data, mountPath: /data}}]
{indent}  livenessProbe: {{exec: {{command: ["true"]}}, periodSeconds: 5}}
{indent}volumes: [{{name: data, emptyDir: {{}}}}]
{indent}nodeSelector: {{pool: gpu}}
{indent}restartPolicy: Never
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: train, labels: {a: b}}\nspec:\n" + _TEMPLATE.format(indent="  ")
JOB = (
    "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec:\n  backoffLimit: 2\n  completions: 2\n"
    "  parallelism: 2\n  completionMode: Indexed\n  template:\n    spec:\n" + _TEMPLATE.format(indent="      ")
)
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: train}
spec:
  clusterIP: None
  selector: {a: b}
  ports: [{port: 80, name: http}, {port: 81, name: other}]
"""
POLICY = "  backoffLimit: 2\n"
_CODES = "onExitCodes: {operator: In, values: [1, 3]}"


def _policy(rule: str, more: str = "") -> str:
    return f"{POLICY}{more}  podFailurePolicy: {{rules: [{{action: FailJob, {rule}}}]}}\n"


FAULTS: tuple[tuple[str, str, str], ...] = (
    (JOB, POLICY, _policy(f"{_CODES}, onPodConditions: [{{type: DisruptionTarget}}]")),
    (JOB, POLICY, POLICY + "  podFailurePolicy: {rules: [{action: FailJob}]}\n"),
    (JOB, POLICY, _policy("onExitCodes: {operator: In, values: [0, 3]}")),
    (JOB, POLICY, _policy("onExitCodes: {operator: In, values: [3, 1]}")),
    (JOB, POLICY, _policy("onExitCodes: {operator: In, values: [3, 3]}")),
    (JOB, POLICY, _policy("onExitCodes: {operator: In, values: []}")),
    (JOB, POLICY, _policy("onExitCodes: {containerName: other, operator: In, values: [3]}")),
    (JOB, POLICY, _policy(_CODES).replace("FailJob", "FailIndex")),
    (JOB, POLICY, _policy(_CODES, "  podReplacementPolicy: TerminatingOrFailed\n")),
    (JOB, POLICY, "  maxFailedIndexes: 1\n"),
    (JOB, POLICY, "  backoffLimitPerIndex: 1\n  maxFailedIndexes: 3\n"),
    (JOB, POLICY, "  successPolicy: {rules: [{}]}\n"),
    (JOB, POLICY, "  successPolicy: {rules: [{succeededIndexes: '0,2'}]}\n"),
    (JOB, POLICY, "  successPolicy: {rules: [{succeededCount: 3}]}\n"),
    (JOB, "completionMode: Indexed", "backoffLimitPerIndex: 1"),
    (JOB, "completionMode: Indexed", "successPolicy: {rules: [{succeededCount: 1}]}"),
    (POD, "emptyDir: {}", "hostPath: {path: /x, type: Dir}"),
    (POD, "emptyDir: {}", "hostPath: {path: /x/../y}"),
    (POD, "mountPath: /data", "mountPath: ''"),
    (POD, 'value: "1"', "valueFrom: {secretKeyRef: {name: s, key: a b}}"),
    (POD, "memory: 4Gi", "google.com/tpu: 4.5"),
    (POD, "emptyDir: {}", "secret: {secretName: s, defaultMode: 1000}"),
    (POD, "emptyDir: {}", "configMap: {name: c, items: [{key: k, path: ../p}]}"),
    (POD, "name: http}", "name: http}, {containerPort: 81, name: http}"),
    (POD, "nodeSelector: {pool: gpu}", "tolerations: [{operator: Exists, effect: NoSchedule, tolerationSeconds: 5}]"),
    (
        POD,
        "nodeSelector: {pool: gpu}",
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
            "{nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}}}"
        ),
    ),
    (POD, POD[POD.index("  containers:") : POD.index("  volumes:")], "  containers: []\n"),
    (POD, "memory: 4Gi", "memory: 4GB"),
    (POD, "cpu: 500m", "cpu: '0,5'"),
    (POD, "cpu: 100m", "cpu: 2"),
    (POD, "emptyDir: {}", "emptyDir: {sizeLimit: big}"),
    (POD, "emptyDir: {}", "emptyDir: {}, hostPath: {path: /}"),
    (POD, "emptyDir: {}", "nfs: {server: a, path: rel}"),
    (POD, 'value: "1"', "value: 1"),
    (POD, 'value: "1"', 'value: "1", valueFrom: {fieldRef: {fieldPath: metadata.name}}'),
    (POD, 'value: "1"', "valueFrom: {fieldRef: {fieldPath: metadata.nothing}}"),
    (POD, "kind: Pod", "kind: pod"),
    (POD, "mountPath: /data}", "mountPath: /data}, {name: data, mountPath: /data}"),
    (POD, "mountPath: /data", "mountPath: /data, subPath: ../x"),
    (POD, "[{name: data, mount", "[{name: other, mount"),
    (POD, "periodSeconds: 5", "tcpSocket: {port: 1}"),
    (POD, 'exec: {command: ["true"]}, ', ""),
    (POD, "restartPolicy: Never", "restartPolicy: Never\n  activeDeadlineSeconds: 0"),
    (
        POD,
        "nodeSelector: {pool: gpu}",
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
            "{nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Is, values: [b]}]}]}}}"
        ),
    ),
    (POD, "nodeSelector: {pool: gpu}", "tolerations: [{key: a, effect: Never}]"),
    (POD, "containerPort: 80", "containerPort: 80000"),
    (POD, "name: http}]", "name: http, protocol: tcp}]"),
    (POD, "name: main", "name: Main"),
    (POD, "image: busybox", "imagePullPolicy: Sometimes\n    image: busybox"),
    (POD, "args: [a]", "args: a"),
    (POD, "a: b}", "a: b c}"),
    (JOB, "restartPolicy: Never", "restartPolicy: Always"),
    (JOB, "      restartPolicy: Never\n", ""),
    (JOB, "apiVersion: batch/v1", "apiVersion: batch/v1beta1"),
    (JOB, "  backoffLimit: 2", "  backoffLimits: 2"),
    (JOB, "completionMode: Indexed", "completionMode: indexed"),
    (JOB, "  completions: 2\n", ""),
    (JOB, "name: train", "name: A_B"),
    (JOB, "    spec:\n", "    spec:\n      container: []\n"),
    (SERVICE, "clusterIP: None", "clusterIP: none"),
    (SERVICE, ", name: other", ""),
    (
        SERVICE,
        "  clusterIP: None\n  selector: {a: b}\n  ports: [{port: 80, name: http}, {port: 81, name: other}]",
        "  selector: {a: b}",
    ),
)
NEWER = {  # what release 1.20 takes: it knows no Indexed Jobs and drops keys without a word
    "  backoffLimits: 2", "completionMode: indexed", "", "    spec:\n      container: []\n",
    *(new for _, old, new in FAULTS if old in {POLICY, "completionMode: Indexed"}),
}  # fmt: skip
RULES = "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: 'True'}]}]}"
TAKEN: tuple[tuple[str, str, str], ...] = (
    (POD, "memory: 4Gi", "memory: 4e9"),
    (POD, "cpu: 500m", "cpu: 0.5"),
    (POD, "cpu: 500m", "cpu: '1.5'"),
    (POD, "emptyDir: {}", "emptyDir: {medium: Memory, sizeLimit: 1Gi}"),
    (POD, 'value: "1"', "valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a']\"}}"),
    (POD, "periodSeconds: 5", "initialDelaySeconds: 0"),
    (POD, "restartPolicy: Never", "restartPolicy: Never\n  tolerations: [{operator: Exists}]"),
    (POD, "image: busybox", "image: busybox\n    imagePullPolicy: Always"),
    (JOB, "  completions: 2\n  parallelism: 2\n  completionMode: Indexed\n", ""),
    (POD, "restartPolicy: Never", "restartPolicy: Never\n  terminationGracePeriodSeconds: -1"),
    (JOB, "    spec:\n", "    metadata: {creationTimestamp: null, labels: {a: b}}\n    spec:\n"),
    (JOB, "backoffLimit: 2", RULES),
    (SERVICE, "clusterIP: None", "type: ClusterIP"),
    (SERVICE, "  ports: [{port: 80, name: http}, {port: 81, name: other}]\n", ""),
    (SERVICE, "{port: 80, name: http}, {port: 81, name: other}", "{port: 80}"),
)
