"""The program that waits in warm containers: what it forks is what `python` starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.local.warm_process import WarmProcess, make_folders
from tests.make.engines.support import wait_for

Start = Callable[..., WarmProcess]
BIG = "import sys\nprint('big loads')\nprint('to stderr', file=sys.stderr)\nfrom big import part\n"
FILES = {"site/big/__init__.py": BIG, "site/big/part.py": "X = 1\n", "app/pkg/__init__.py": ""}
PROBE = """\
import os, signal, sys
print("before", "big" in sys.modules)
import big
from pkg import other
mask = os.umask(0)
handled = [name for name in ("TERM", "INT", "HUP", "USR1", "USR2", "CHLD", "PIPE")
           if signal.getsignal(getattr(signal, "SIG" + name)) not in (signal.SIG_DFL, signal.default_int_handler)]
print(sys.argv, sys.path, sys.orig_argv[1:], sys.flags, __name__, __file__, __package__, __spec__ and __spec__.name)
print(os.getcwd(), oct(mask), handled, signal.pthread_sigmask(signal.SIG_BLOCK, []), os.read(0, 1), big.part.X)
print(sorted(os.environ.items()), sorted(set(os.listdir("/proc/self/fd")) & set("0123456789")))
print(sorted(name for name in globals() if name not in PLAIN), os.getpgrp() == os.getpid() or COLD, other.NAME)
print(sorted(name for name in sys.modules if "big" in name or "pkg" in name))
print(sys.stdin.name, sys.stdout.line_buffering, sys.stdout.encoding, sys.excepthook is sys.__excepthook__)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[WarmProcess] = []

    def begin(files: dict[str, str], *words: str, env: Mapping[str, str] | None = None) -> WarmProcess:
        make_folders(tmp_path, {**FILES, **files})
        made.append(WarmProcess(tmp_path, *words, env=env))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def run_cold(root: Path, *words: str) -> tuple[int, str]:
    """Runs the same program as its container would."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=root / "app",
        env={"PYTHONPATH": str(root / "lib/site-packages"), "PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stdout


def list_lines(printed: str) -> list[str]:
    """The lines in order, without those of an import, which only the first program prints."""
    return sorted(line for line in printed.splitlines() if line not in {"big loads", "to stderr"})


@pytest.mark.parametrize("words", [("-m", "pkg.task"), ("-u", "-O", "-X", "dev", "pkg/task.py"), ("-m", "pkg")])
def test_a_program_finds_all_that_python_gives_it(start: Start, tmp_path: Path, words: tuple[str, ...]) -> None:
    name = "app/pkg/__main__.py" if words == ("-m", "pkg") else "app/pkg/task.py"
    if name.endswith("task.py") and words[0] == "-u":  # `python pkg/task.py` searches pkg
        make_folders(tmp_path, {"app/pkg/pkg/__init__.py": "", "app/pkg/pkg/other.py": "NAME = 'other'\n"})
    head = "COLD = {}\nPLAIN = ['COLD', 'PLAIN']\n"
    warm = start({name: head.format(False) + PROBE, "app/pkg/other.py": "NAME = 'other'\n"}, *words, "--one", "2")
    first, again = warm.run(), warm.run()
    assert warm.is_warm
    (tmp_path / name).write_text(head.format(True) + PROBE)
    cold, expected = run_cold(tmp_path, *words, "--one", "2")
    expected = expected.replace("COLD = True", "COLD = False")
    assert (first[0], sorted(first[1].splitlines())) == (cold, sorted(expected.splitlines()))
    assert (again[0], list_lines(again[1])) == (cold, list_lines(expected))


ENDS = {
    "nothing": ("", 0),
    "exit code": ("import sys\nsys.exit(7)", 7),
    "exit text": ("import sys\nsys.exit('no data')", 1),
    "error": ("def f():\n    raise ValueError('bad')\nf()", 1),
    "error in a wheel": ("import big\nbig.part.missing", 1),
    "no module": ("import nothing_of_that_name", 1),
    "syntax": ("def f(:\n    pass", 1),
    "syntax elsewhere": ("from pkg import wrong", 1),
    "at exit": ("import atexit\natexit.register(print, 'bye')\nprint('hello')", 0),
    "thread": ("import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()", 0),
    "crash": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", 139),
    "at once": ("import os\nos._exit(5)", 5),
    "chained": ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('x')", 1),
    "own hook": ("import sys\nsys.excepthook = lambda *a: print('hook', a[0])\n1 / 0", 1),
}


@pytest.mark.parametrize("words", [("-m", "pkg.task"), ("pkg/task.py",)])
@pytest.mark.parametrize("case", sorted(ENDS))
def test_a_program_ends_as_python_ends(start: Start, tmp_path: Path, case: str, words: tuple[str, ...]) -> None:
    text, code = ENDS[case]
    warm = start({"app/pkg/task.py": f"import big\n{text}\n", "app/pkg/wrong.py": "x = (\n"}, *words)
    first, again = warm.run(), warm.run()
    cold, expected = run_cold(tmp_path, *words)
    assert first[0] == again[0] == (128 - cold if cold < 0 else cold) == code
    assert sorted(first[1].splitlines()) == sorted(expected.splitlines())
    assert list_lines(again[1]) == list_lines(expected)


def test_variables_that_the_program_sets_before_an_import_are_set_before_it(start: Start) -> None:
    big = "import os\nMODE = os.environ.get('BIG_MODE', 'plain')\nos.environ['BIG_SEEN'] = '1'\n"
    task = (
        "import os\nprint(os.environ.get('BIG_MODE'), os.environ.get('BIG_SEEN'))\nos.environ['BIG_MODE'] = 'fast'\n"
        "import big\nprint(big.MODE, os.environ['BIG_SEEN'])\n"
    )
    warm = start({"site/big/__init__.py": big, "app/pkg/task.py": task}, "-m", "pkg.task")
    for _ in range(2):
        assert warm.run() == (0, "None None\nfast 1\n")
    assert warm.is_warm
    (warm.app / "pkg/task.py").write_text(task.replace("fast", "small"))  # of another size
    warm.start()
    assert [warm.answer(state)["state"] for state in ("started", "cold", "started", "ended")]
    assert warm.printed() == "None None\nNone None\nsmall 1\n"
    assert warm.run() == (0, "None None\nsmall 1\n")
    assert warm.is_warm


def test_random_numbers_are_other_ones_each_time(start: Start) -> None:
    task = "import big, random, tempfile, uuid\nnames = tempfile._RandomNameSequence()\n"
    task += "print(random.random(), uuid.uuid4(), next(names))\n"
    warm = start({"site/big/__init__.py": "import random\n", "app/pkg/task.py": task}, "-m", "pkg.task")
    assert len({part for _ in range(3) for part in warm.run()[1].split()}) == 9


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"site/big/__init__.py": "import threading, time\nt = threading.Thread(target=time.sleep, args=(60,), "
          "daemon=True)\nt.start()\n"}, "start threads"),
        ({"app/random.py": "def seed(): pass\n"}, "your module random hides"),
    ],
)  # fmt: skip
def test_a_process_that_cannot_be_forked_says_why(start: Start, files: dict[str, str], reason: str) -> None:
    task = "import big\nprint('runs')\n"
    warm = start({"app/pkg/task.py": task, "site/big/__init__.py": "", **files}, "-m", "pkg.task")
    assert warm.run() == (0, "runs\n")
    for _ in range(2 if reason else 0):
        warm.start()
        if reason:
            assert reason in warm.answer("cold")["reason"]
            reason = ""
        assert warm.answer("started")["warm"] is False
        assert warm.answer("ended")["code"] == 0


def test_an_import_that_fails_is_left_to_the_program(start: Start) -> None:
    task = "try:\n    import bad\nexcept ImportError as error:\n    print('no', error)\nimport big\nprint('yes')\n"
    warm = start({"site/bad/__init__.py": "raise ImportError('x')\n", "app/pkg/task.py": task}, "-m", "pkg.task")
    for _ in range(2):
        assert list_lines(warm.run()[1]) == ["no x", "yes"]
    assert warm.is_warm


def test_a_new_import_is_taken_along(start: Start) -> None:
    warm = start({"app/pkg/task.py": "import big\n", "site/more.py": "print('more loads')\n"}, "-m", "pkg.task")
    warm.run()
    (warm.app / "pkg/task.py").write_text("import big\nimport more\n# longer\n")
    assert ["more loads" in warm.run()[1] for _ in range(2)] == [True, False]


def test_what_a_program_leaves_is_gone_for_the_next(start: Start) -> None:
    task = "import glob, os\nprint(os.listdir('.'), glob.glob('*/*/oth*'))\nos.mkdir('new')\nopen('new/x', 'w')\n"
    warm = start({"app/pkg/task.py": task + "import pkg.other\n", "app/pkg/other.py": ""}, "-m", "pkg.task")
    for _ in range(3):
        assert warm.run() == (0, "['pkg'] []\n")


def test_sigterm_reaches_a_program_that_handles_it_and_no_other(start: Start) -> None:
    task = (
        "import signal, sys, time\nif sys.argv[1] == 'yes':\n"
        "    signal.signal(signal.SIGTERM, lambda *a: sys.exit(9))\nprint('ready')\ntime.sleep(10)\n"
    )
    for word, code in (("yes", 9), ("no", 137)):
        warm = start({"app/pkg/task.py": task}, "-m", "pkg.task", word)
        warm.start()
        warm.answer("started")
        time.sleep(0.5)
        warm.signal(signal.SIGTERM)
        time.sleep(0.5)
        warm.signal(signal.SIGUSR2)
        assert warm.answer("ended")["code"] == code
        warm.close()


def test_an_order_to_end_that_comes_late_does_not_end_the_next_program(start: Start) -> None:
    warm = start({"app/pkg/task.py": "print('runs')\n"}, "-m", "pkg.task")
    assert warm.run() == (0, "runs\n")
    warm.signal(signal.SIGSTOP)
    warm.signal(signal.SIGUSR2)
    warm.signal(signal.SIGTERM)
    warm.start()
    warm.signal(signal.SIGCONT)
    assert [warm.answer("started")["number"], warm.answer("ended")["code"]] == [2, 0]
    assert warm.printed() == "runs\n"


EXECUTES = "import os, sys\nos.environ['SET'] = 'it'\nos.execvp(sys.argv[1], sys.argv[1:])"
TASK = "import os, sys\nimport big\nprint(sys.argv[1:], os.environ['SET'], __name__, sys.orig_argv[1:])\nsys.exit(3)\n"


def test_a_launcher_that_sets_variables_and_executes_the_program_is_warm(start: Start) -> None:
    words = (sys.executable, "-m", "pkg.task", "--x")
    warm = start({"app/pkg/task.py": TASK}, "-c", EXECUTES, *words)
    first, again = warm.run(), warm.run()
    assert first[0] == again[0] == 3
    line = f"['--x'] it __main__ {[*words[1:]]}"
    assert sorted(first[1].splitlines()) == sorted(["big loads", "to stderr", line])
    assert again[1].splitlines() == [line]


LAUNCHES = """\
import os, signal, subprocess, sys
def start(rank):
    env = {**os.environ, "RANK": rank, "MASTER_PORT": str(os.getpid())}
    return subprocess.Popen(args=[sys.executable, "-u", *sys.argv[1:]], env=env, start_new_session=True)
workers = [start("0"), start("1")]
signal.signal(signal.SIGTERM, lambda *_: [os.killpg(one.pid, signal.SIGTERM) for one in workers])
codes = [worker.poll() or worker.wait() for worker in workers]
print("codes", codes, flush=True)
"""
RANKS = """\
import os, signal, sys, time
rank = os.environ["RANK"]
if rank == "1" and {changes}:
    os.environ["SET"] = str(time.time())
import big
alone = os.getpgrp() == os.getpid()
sys.stdout.write(" ".join(map(str, ["rank", rank, os.environ["MASTER_PORT"].isdigit(), sys.argv[1:], alone])) + "\\n")
if {waits}:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
    open("../up-" + rank, "w").close()
    time.sleep(60)
os.kill(os.getpid(), signal.SIGKILL) if rank == "1" else sys.exit(4)
"""
PRINTED = ["codes [4, -9]", "rank 0 True ['x'] True", "rank 1 True ['x'] True"]


def test_the_processes_of_a_launcher_are_warm(start: Start, tmp_path: Path) -> None:
    warm = start({"app/pkg/task.py": RANKS.format(changes=False, waits=False)}, "-c", LAUNCHES, "-m", "pkg.task", "x")
    code, printed = warm.run()
    assert (code, list_lines(printed), printed.count("big loads")) == (0, PRINTED, 2)
    for _ in range(2):
        code, printed = warm.run()
        assert (code, sorted(printed.splitlines())) == (0, PRINTED)
    make_folders(tmp_path, {"app/pkg/task.py": RANKS.format(changes=False, waits=True)})
    warm.start()
    warm.answer("started")
    wait_for(lambda: len(list(tmp_path.glob("up-*"))) == 2, 20)
    warm.signal(signal.SIGTERM)
    warm.answer("ended")
    assert "codes [9, 9]" in warm.printed()


def test_a_process_of_a_launcher_that_cannot_be_forked_starts_cold(start: Start) -> None:
    warm = start({"app/pkg/task.py": RANKS.format(changes=True, waits=False)}, "-c", LAUNCHES, "-m", "pkg.task", "x")
    warm.run()
    for _ in range(2):
        warm.start()
        warm.answer("started")
        assert warm.answer("cold")["reason"] == "the program sets SET before it imports big"
        warm.answer("ended")
        printed = warm.printed()
        assert (list_lines(printed), printed.count("big loads")) == (PRINTED, 1)
