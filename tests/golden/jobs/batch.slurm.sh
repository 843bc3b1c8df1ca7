#!/bin/bash
# Written by imgtool 0.1.0 for slurm; spec 0c254ef24934b77a.
# Submit with:
#   sbatch config.yaml
# Needs pyxis, and an enroot that reads digests (docker://REGISTRY#IMAGE@DIGEST).
#SBATCH --job-name=mnist
#SBATCH --nodes=5
#SBATCH --ntasks=5
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4096M
#SBATCH --gpus-per-node=1

export CLUSTER_TASKS='{"chief": 1, "ps": 1, "worker": 2, "evaluator": 1}'
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
srun --nodes=1 --ntasks=1 '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' --container-mounts=/shared/mnist:/job /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 0 /opt/venv/bin/python -m trainer.task &
step0=$!
srun --nodes=1 --ntasks=1 --relative=1 '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc' --container-mounts=/shared/mnist:/job /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 1 /opt/venv/bin/python -m trainer.task &
step1=$!
srun --nodes=2 --ntasks=2 --relative=2 '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb' --container-mounts=/shared/mnist:/job /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 2 /opt/venv/bin/python -m trainer.task &
step2=$!
srun --nodes=1 --ntasks=1 --relative=4 '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd' --container-mounts=/shared/mnist:/job /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 4 /opt/venv/bin/python -m trainer.task &
step3=$!
wait "$step0"; code=$?  # parameter servers never end by themselves
kill "$step1" "$step2" "$step3" 2>/dev/null
wait
exit $code
