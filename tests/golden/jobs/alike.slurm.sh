#!/bin/bash
# Written by imgtool 0.1.0 for slurm; spec 3b2b1febfc8a7a3c.
# Submit with imgtool submit, or:
#   sbatch config.yaml
# Needs pyxis, and an enroot that reads digests (docker://REGISTRY#IMAGE@DIGEST).
#SBATCH --job-name=mnist-49cff737f33e
#SBATCH --comment=49cff737f33e
#SBATCH --nodes=3
#SBATCH --ntasks=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32768M
#SBATCH --gpus-per-node=2
#SBATCH --time=2:01:01
#SBATCH --signal=TERM@90
#SBATCH --partition=gpu
#SBATCH --account=team

export SLURM_EXPORT_ENV=ALL  # the steps get all of this, whatever sbatch --export said
export PRICE='$5 '"'"'x'"'"''
export CLUSTER_TASKS='{"worker": 3}'
export CLUSTER_LAUNCHER='import json, os, sys
nodes, rank, first, *program = sys.argv[1:]
port = os.environ.get("CLUSTER_PORT", "2222")
hosts = [host + ":" + port for host in os.environ[nodes].split()]
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
export HF_TOKEN="$(sed -n 's/^HF_TOKEN=//p' /home/ml/train.env)"
: "${HF_TOKEN:?is not in /home/ml/train.env}"
export WANDB_API_KEY="$(sed -n 's/^WANDB_API_KEY=//p' /home/ml/train.env)"
: "${WANDB_API_KEY:?is not in /home/ml/train.env}"
export CLUSTER_NODES="$(scontrol show hostnames "$SLURM_JOB_NODELIST")"
export CLUSTER_PORT=$((12000 + SLURM_JOB_ID % 20000))  # nodes may run other jobs too
exec srun --nodes=3 --ntasks=3 --job-name=worker --kill-on-bad-exit=1 --label '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb' --container-env=PRICE,HF_TOKEN,WANDB_API_KEY /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 0 /opt/venv/bin/dumb-init --single-child /opt/venv/bin/python -m trainer.task y 1e3 0755 2.10 on null '' ' a b ' 'é' '$(HOME)' '${X}' '#x' 'a: b' ''"'"'"' '	tab
' 12:30 --job-dir=gs://my-bucket/mnist
