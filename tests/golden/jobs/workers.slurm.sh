#!/bin/bash
# Written by imgtool 0.1.0 for slurm; spec 7e17a9d08fd5b0a8.
# Submit with imgtool submit, or:
#   sbatch config.yaml
# Needs pyxis, and an enroot that reads digests (docker://REGISTRY#IMAGE@DIGEST).
#SBATCH --job-name=mnist-010badea2d5b
#SBATCH --comment=010badea2d5b
#SBATCH --nodes=4
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=1

export SLURM_EXPORT_ENV=ALL  # the steps get all of this, whatever sbatch --export said
export CLUSTER_TASKS='{"worker": 3, "evaluator": 1}'
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
(srun --nodes=3 --ntasks=3 --job-name=worker --kill-on-bad-exit=1 --label '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb' /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 0 /opt/venv/bin/python -m trainer.task; echo "worker $?" >&3) &
(srun --nodes=1 --ntasks=1 --relative=3 --job-name=evaluator --kill-on-bad-exit=1 --label '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd' /opt/venv/bin/python -c "$CLUSTER_LAUNCHER" CLUSTER_NODES SLURM_PROCID 3 /opt/venv/bin/python -m trainer.task; echo "evaluator $?" >&3) &
evaluated=
while read -r role code <&3; do  # the chief's end is the job's, and so is any failure
  if [ "$role" = evaluator ]; then evaluated=yes; fi
  if [ "$role" = worker ] || [ "$code" -ne 0 ]; then break; fi
done
if [ "$code" -eq 0 ]; then  # the evaluator may finish the last checkpoint
  until [ -n "$evaluated" ]; do
    read -r -t 600 role last <&3 || break
    if [ "$role" = evaluator ]; then evaluated=yes; fi
  done
fi
exit "$code"  # Slurm ends the other steps
