#!/bin/bash
# Written by imgtool 0.1.0 for slurm; spec f992214f85aae66f.
# Submit with imgtool submit, or:
#   sbatch config.yaml
# Needs pyxis, and an enroot that reads digests (docker://REGISTRY#IMAGE@DIGEST).
#SBATCH --job-name=mnist-7932d90516a7
#SBATCH --comment=7932d90516a7
#SBATCH --nodes=5
#SBATCH --ntasks=5
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4096M
#SBATCH --gpus-per-node=1

export SLURM_EXPORT_ENV=ALL  # the steps get all of this, whatever sbatch --export said
export CLUSTER_TASKS='{"chief": 1, "ps": 1, "worker": 2, "evaluator": 1}'
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
export CLUSTER_NODES="$(scontrol show hostnames "$SLURM_JOB_NODELIST")"
export CLUSTER_PORT=$((12000 + SLURM_JOB_ID % 20000))  # nodes may run other jobs too
exec 3<> <(:)  # a pipe in which each step writes how it ended
(srun --nodes=1 --ntasks=1 --job-name=master --kill-on-bad-exit=1 --label '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' --container-mounts=/shared/mnist:/job,/mnt/data:/data /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 0 /opt/venv/bin/dumb-init --single-child /opt/venv/bin/python -m trainer.task; echo "master $?" >&3) &
(srun --nodes=1 --ntasks=1 --relative=1 --job-name=ps --kill-on-bad-exit=1 --label '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc' --container-mounts=/shared/mnist:/job,/mnt/data:/data /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 1 /opt/venv/bin/dumb-init --single-child /opt/venv/bin/python -m trainer.task; echo "ps $?" >&3) &
(srun --nodes=2 --ntasks=2 --relative=2 --job-name=worker --kill-on-bad-exit=1 --label '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb' --container-mounts=/shared/mnist:/job,/mnt/data:/data /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 2 /opt/venv/bin/dumb-init --single-child /opt/venv/bin/python -m trainer.task; echo "worker $?" >&3) &
(srun --nodes=1 --ntasks=1 --relative=4 --job-name=evaluator --kill-on-bad-exit=1 --label '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd' --container-mounts=/shared/mnist:/job,/mnt/data:/data /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 4 /opt/venv/bin/dumb-init --single-child /opt/venv/bin/python -m trainer.task; echo "evaluator $?" >&3) &
evaluated=
while read -r role code <&3; do  # the chief's end is the job's, and so is any failure
  if [ "$role" = evaluator ]; then evaluated=yes; fi
  if [ "$role" = master ] || [ "$code" -ne 0 ]; then break; fi
done
if [ "$code" -eq 0 ]; then  # the evaluator may finish the last checkpoint
  until [ -n "$evaluated" ]; do
    read -r -t 600 role last <&3 || break
    if [ "$role" = evaluator ]; then evaluated=yes; fi
  done
fi
exit "$code"  # Slurm ends the other steps
