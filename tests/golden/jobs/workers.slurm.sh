#!/bin/bash
# Written by imgtool 0.1.0 for slurm; spec 7e17a9d08fd5b0a8.
# Submit with:
#   sbatch config.yaml
# Needs pyxis, and an enroot that reads digests (docker://REGISTRY#IMAGE@DIGEST).
#SBATCH --job-name=mnist
#SBATCH --nodes=4
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=1

export CLUSTER_TASKS='{"worker": 3, "evaluator": 1}'
export CLUSTER_LAUNCHER='import json, os, sys
nodes, rank, first, *program = sys.argv[1:]
hosts = [f"{host}:2222" for host in os.environ[nodes].split()]
rank = int(os.environ[rank]) + int(first)
cluster, start, task = {}, 0, None
for kind, count in json.loads(os.environ["CLUSTER_TASKS"]).items():
    cluster[kind] = hosts[start : start + count]
    if start <= rank < start + count:
        task = {"type": kind, "index": rank - start}
    start += count
spec = {"cluster": cluster, "task": task, "environment": "cloud"}
config = {**spec, "cluster": {kind: cluster[kind] for kind in cluster if kind != "evaluator"}}
os.environ.update(CLUSTER_SPEC=json.dumps(spec), TF_CONFIG=json.dumps(config))
os.execvp(program[0], program)
'
export CLUSTER_NODES="$(scontrol show hostnames "$SLURM_JOB_NODELIST")"
srun --nodes=3 --ntasks=3 '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb' /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 0 /opt/venv/bin/python -m trainer.task &
step0=$!
srun --nodes=1 --ntasks=1 --relative=3 '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd' /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 3 /opt/venv/bin/python -m trainer.task &
step1=$!
wait "$step0"; code=$?  # parameter servers never end by themselves
kill "$step1" 2>/dev/null
wait
exit $code
