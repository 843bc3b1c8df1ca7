#!/bin/bash
# Written by imgtool 0.1.0 for slurm; spec 17ae6df4b623dda5.
# Submit with imgtool submit, or:
#   sbatch config.yaml
# Needs pyxis, and an enroot that reads digests (docker://REGISTRY#IMAGE@DIGEST).
#SBATCH --job-name=mnist-0db83e7eedfe
#SBATCH --comment=0db83e7eedfe
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=1

export SLURM_EXPORT_ENV=ALL  # the steps get all of this, whatever sbatch --export said
exec srun --nodes=1 --ntasks=1 --job-name=worker --kill-on-bad-exit=1 --label '--container-image=docker://us-central1-docker.pkg.dev#my-project/training/mnist@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb' /opt/venv/bin/python -m trainer.task
