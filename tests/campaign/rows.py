"""The cases in which earlier versions differed from Docker without a word; each campaign tries them first."""

from __future__ import annotations

from tests.campaign.cases import Base, Case

_PLAIN = ("etc/", "opt/", "srv/")


def _on(*entries: str, **settings: object) -> Base:
    named = {entry.partition(" ")[0] for entry in entries}
    return Base(((*(entry for entry in _PLAIN if entry not in named), *entries),), settings)


_BASE = _on()
_OWNED = "COPY d /app/d\nCOPY --chown=1000:1000 d /app/d\nUSER 1000\n"
_TEXTS = {
    "B2 the owner of code that an earlier COPY made": _OWNED,
    "B2 chown onto what is there": "COPY d /x\nCOPY --chown=7 d /x\n",
    "B2 root onto what is chowned": "COPY --chown=7 d /x\nCOPY d/sub /x/sub\n",
    "B2 a group": "COPY d /x\nCOPY --chown=0:5 d /x\n",
    "B2 below /opt": "COPY d /opt/d\nCOPY --chown=3:3 d /opt/\nCOPY --chown=3:3 link-dir /opt/d\n",
    "M4 a folder onto a file": "COPY a.txt /app/task.py\nCOPY d /app/task.py\n",
    "M4 a folder onto a file, at once": "COPY a.txt /app/q\nCOPY d /app/q\n",
    "M4 WORKDIR onto a file": "COPY a.txt /app/task.py\nWORKDIR /app/task.py\n",
    "M4 a file into a file": "COPY a.txt /app/task.py\nCOPY a.txt /app/task.py/\n",
    "M4 a dot behind a slash": "COPY a.txt /x/.\n",
    "M4 a dot behind a folder": "WORKDIR /x\nCOPY a.txt /x/.\n",
    "M4 a second HEALTHCHECK": "HEALTHCHECK --interval=9s CMD a\nHEALTHCHECK CMD b\n",
    "M4 CMD with nothing": "CMD\n",
    "M4 STOPSIGNAL": "STOPSIGNAL BOGUS\n",
    "M4 no interval": "HEALTHCHECK --interval=0s CMD x\n",
    "M4 a short interval": "HEALTHCHECK --interval=500us CMD x\n",
    "M4 no retries": "HEALTHCHECK --retries=0 CMD x\n",
    "M4 retries below 0": "HEALTHCHECK --retries=-1 CMD x\n",
    "m3 retries that are no number": "HEALTHCHECK --retries=abc CMD x\n",
    "M4 NONE with more": "HEALTHCHECK NONE x\n",
    "M4 HEALTHCHECK without a command": "HEALTHCHECK CMD\n",
    "M4 an empty volume": 'VOLUME [""]\n',
    "M4 an empty WORKDIR": "WORKDIR $UNSET\n",
    "M4 a flag twice": "COPY --chown=1 --chown=2 a.txt /x\n",
    "M3 everything": "COPY . /all\n",
    "M3 a pattern": "COPY * /all/\n",
    "m7 a link": "COPY link-file /x/\nCOPY link-file /y\nCOPY link-dir /z\n",
    "a link to nothing": "COPY w/* /x/\n",
    "ADD of an archive without a magic number": "ADD w/old-tar /x/\n",
    "a link to the context": "COPY w/up/a.txt /x/\n",
    "an ARG and an ENV of one name": "ENV A=d\nARG A=e\nENV B=$A\n",
    "a flag in capitals": "COPY --CHOWN=7 a.txt /x\n",
    "a flag without its value": "COPY --chown a.txt /x\n",
    "a flag where none belongs": "CMD --verbose x\n",
    "out of the root": "COPY a.txt /..\n",
    "no volume": "VOLUME []\n",
    "a pattern with a slash": "COPY d/*/ /x/\n",
    "a pattern with dots": "COPY w/../*.txt /x/\n",
    "an owner above 32 bits": "COPY --chown=4294967296 a.txt /x\n",
    "m7 a variable": "ENV X=d Y=a.txt\nCOPY $X /x\nCOPY ${Y} b.txt /x/\nCOPY w/q\\$A.txt /x/\n",
    "variables with digits for names": "ENV 001=x 1=y 0=z A=$001 B=$1a C=${1} D=$0$10\nCOPY a.txt /$1\n",
    "m7 through a link": "COPY link-dir/x.txt /x/\nCOPY link-dir/inner /x/\n",
}
_BASES = {
    "B1 /app is a link": (_on("app -> /real", "real/", "real/dataset.txt"), "COPY d /app/d\nWORKDIR /app\n"),
    "B1 /app has an owner": (_on("app/ 700 5 5"), "COPY d /app/d\nWORKDIR /app\n"),
    "B1 /app is a file": (_on("app"), "COPY d /app/d\nWORKDIR /app\n"),
    "B1 /srv has an owner": (_on("srv/ 777 7 7"), "COPY d /srv/q\n"),
    "B1 a volume": (_on(Volumes={"/app": {}}), "COPY d /app/d\n"),
    "a WORKDIR that is not absolute": (_on("app/", WorkingDir="app"), "COPY a.txt /x\n"),
    "a variable of the base": (_on(Env=["A=base"]), "ENV B=${A:?unset}\nCOPY a.txt /x\n"),
    "M4 a HEALTHCHECK of the base": (
        _on(Healthcheck={"Test": ["CMD", "x"], "Interval": 9_000_000_000}),
        "HEALTHCHECK CMD b\n",
    ),
}
_PACKAGES = {
    "B1 /opt/venv is there": _on("opt/venv/", "opt/venv/bin/", "opt/venv/bin/python"),
    "B1 /opt/venv with NumPy": _on("opt/venv/", "opt/venv/lib/numpy/oldmod.py"),
    "B1 /opt is a link": Base((("etc/", "opt -> /data", "data/"),)),
    "B1 /opt is a volume": _on(Volumes={"/opt": {}}),
}
_BELOW = {
    "an ARG of the stage below": ("ARG X=1\nENV Y=2\n", "ENV Z=$X$Y\n"),
    "an ARG of the stage below, declared again": ("ARG X=1\n", "ARG X\nENV Z=$X\n"),
    "an ENV above an ARG of the stage below": ("ARG X=1\nENV X=$X\n", "ENV Z=${X}y\n"),
}
ROWS = (
    *(Case(name, _BASE, text) for name, text in _TEXTS.items()),
    *(Case(name, base, text) for name, (base, text) in _BASES.items()),
    *(Case(name, _BASE, text, below=below) for name, (below, text) in _BELOW.items()),
    *(Case(name, base, "WORKDIR /app\n", packages=True) for name, base in _PACKAGES.items()),
)
