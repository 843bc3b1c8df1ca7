"""A Slurm of four nodes on this machine: slurmctld and slurmd of `scripts/services up slurm`, started as root.

A SPANK plugin stands in for pyxis: it takes its options, runs the step without a container, and fails one whose image
is called missing, as pyxis does.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / ".services/slurm/root"
_PYXIS = """\
#include <stddef.h>
#include <string.h>
#include <slurm/spank.h>
SPANK_PLUGIN(pyxis, 1)
static int missing;
static int image(int value, const char *name, int remote) { missing = strstr(name, "missing") != NULL; return 0; }
static int other(int value, const char *name, int remote) { return 0; }
struct spank_option spank_options[] = {{"container-image", "I", "", 1, 0, image},
    {"container-mounts", "M", "", 1, 0, other}, {"container-env", "E", "", 1, 0, other}, SPANK_OPTIONS_TABLE_END};
int slurm_spank_task_init(spank_t spank, int argc, char *argv[]) { return missing ? -1 : 0; }
"""
_CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
PluginDir={plugins}
PlugStackConfig={folder}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
KillWait=2
SlurmdParameters=config_overrides
NodeName=n[1-4] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[4]}] CPUs=4 RealMemory=2000
PartitionName=all Nodes=n[1-4] Default=YES State=UP OverSubscribe=FORCE:4
"""


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which sbatch, squeue and srun speak to a cluster of the nodes n1 to n4; skips without it."""
    compiler = shutil.which("gcc")
    if not ROOT.is_dir() or compiler is None or os.geteuid() != 0:
        pytest.skip("no Slurm here, no gcc, or not root (scripts/services up slurm)")
    libraries = next((ROOT / "usr/lib").glob("*-linux-gnu"))
    plugins = libraries / "slurm-wlm"
    (folder / "state").mkdir(parents=True)
    (folder / "pyxis.c").write_text(_PYXIS)
    compile_it = (compiler, "-shared", "-fPIC", "-I", str(ROOT / "usr/include"), "-o", "pyxis.so", "pyxis.c")
    subprocess.run(compile_it, cwd=folder, check=True)
    (folder / "plugstack.conf").write_text(f"required {folder}/pyxis.so\n")
    config = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    config.write_text(_CONFIG.format(host=host, folder=folder, plugins=plugins, ports=_ports(5)))
    env = {**os.environ, "SLURM_CONF": str(config), "LD_LIBRARY_PATH": f"{libraries}:{plugins}"}
    env["PATH"] = f"{ROOT / 'usr/bin'}:{os.environ['PATH']}"
    with ExitStack() as daemons:
        daemons.enter_context(_daemon("slurmctld", folder, env))
        for number in range(1, 5):
            (folder / f"spool.n{number}").mkdir()
            words = ("-N", f"n{number}", "-d", str(ROOT / "usr/sbin/slurmstepd-wlm"))
            daemons.enter_context(_daemon("slurmd", folder, env, *words))
        deadline = time.monotonic() + 30
        while _ask(env, "sinfo", "--noheader", "--states=idle", "--format=%D") != "4":
            assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.2)
        yield env
        subprocess.run(("scancel", "--user=root"), env=env, check=False)
        while _ask(env, "squeue", "--noheader", "--format=%A"):
            assert time.monotonic() < deadline + 120
            time.sleep(0.2)


def _ask(env: dict[str, str], *command: str) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.stdout.strip()


@contextmanager
def _daemon(name: str, folder: Path, env: dict[str, str], *words: str) -> Iterator[None]:
    with (folder / "log").open("a") as log:
        command = (str(ROOT / f"usr/sbin/{name}-wlm"), "-D", *words)
        started = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=folder)
        try:
            yield
        finally:
            started.terminate()
            started.wait(timeout=20)


def _ports(count: int) -> list[int]:
    """Free ports in a row."""
    for first in range(27800, 28800, count):
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return list(range(first, first + count))
    raise AssertionError("no free ports")
