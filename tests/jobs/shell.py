"""bash with stand-ins for the services' programs, which note what they were called with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PROGRAMS = ("gcloud", "kubectl", "docker", "sky", "sbatch", "srun", "python")
STAND_IN = """#!/bin/sh
printf '%s\\0' "${0##*/}" "$@" "" END "" >> "$RECEIVED"
"""
SCONTROL = "#!/bin/sh\necho node1\n"
SRUN = (
    STAND_IN
    + """\
echo step >> "$RECEIVED.steps"
case " $* " in *" --relative="*) exit ;; esac
while [ "$(wc -l < "$RECEIVED.steps")" -lt "$STEPS" ]; do sleep 0.02; done  # the chief's end ends the others
"""
)


class Shell:
    """A shell whose programs are stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        texts = {**dict.fromkeys(PROGRAMS, STAND_IN), "srun": SRUN, "scontrol": SCONTROL}
        for name, text in texts.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def run(self, script: str) -> list[list[str]]:
        """The calls, in order, program first."""
        log = self.folder / "received"
        log.write_bytes(b"")
        log.with_suffix(".steps").write_bytes(b"")
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        slurm = {"SLURM_JOB_NODELIST": "node[1-4]", "SLURM_JOB_ID": "7", "STEPS": str(script.count("\n(srun "))}
        env = {**os.environ, "PATH": path, "RECEIVED": str(log), **slurm}
        done = subprocess.run(
            ["bash"], input=script, env=env, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [call.split("\0") for call in log.read_text().split("\0\0END\0\0")[:-1]]
