"""Starts the processes of a launcher, such as torchrun, in keepers, which have imported the modules of the program.

A launcher starts Python several times, with the end of its own command. Each of these processes has a keeper, a process
that lives as long as the container and forks the program. The program is then no child of the launcher, which learns
of its end from a socket. If a keeper cannot fork the program, the launcher starts it.

This part of the source of `warm_program` imports only the standard library, and runs on Python 3.7.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COLD = b"cold"  # the answer of a keeper that cannot fork the program
_KINDS = {"-m": "module", "-c": "code"}
_NAMED = {"args", "env", "stdout", "stderr", "start_new_session"}  # arguments of Popen that a keeper can follow
_TRIES, _PAUSE = 1000, 0.01  # how often to try to reach a new keeper, and the seconds between


class Keepers:
    """The keepers of the processes that this launcher starts, in their order.

    Args:
        order: that of this process, which a keeper's resembles.
        arguments: the launcher's own; those of the processes are their end.
    """

    def __init__(self, order: dict[str, Any], arguments: list[str]) -> None:
        self._order, self._arguments = order, arguments
        self._zygote, self._count = os.getppid(), 0

    def start(self, named: dict[str, Any], popen: Any) -> tuple[socket.socket, int] | None:
        """Starts a process in a keeper: returns its socket and its number, or None if `popen` has to start it."""
        args = list(named.get("args", ()))
        at = self._find_program(args) if named.keys() <= _NAMED else 0
        if not at:
            return None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            streams = [named.get(name) or standard for name, standard in (("stdout", 1), ("stderr", 2))]
            numbers = array.array("i", [one if isinstance(one, int) else one.fileno() for one in streams])
            place = "\0{} {} {}".format(self._order["token"], self._zygote, self._count)
            self._count += 1
            link = _connect(place) or self._start_keeper(place, args, at, popen)
            request = json.dumps({"env": dict(named.get("env") or os.environ), "cwd": os.getcwd()}).encode()
            link.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
            answer = link.recv(100)
            return (link, int(answer)) if answer != COLD else None
        return None

    def _find_program(self, args: list[str]) -> int:
        """Returns the place of the program in a command of Python with the end of the arguments; 0 for others."""
        at = next((at for at, word in enumerate(args) if at and (word in _KINDS or word.endswith(".py"))), 0)
        is_own = args[:1] == [sys.executable] and args[at:] == self._arguments[at - len(args) :]
        return at if is_own else 0

    def _start_keeper(self, place: str, args: list[str], at: int, popen: Any) -> socket.socket:
        kind, words = _KINDS.get(args[at], "script"), read_words()
        name, *rest = args[at + (kind != "script") :]
        order = dict(self._order, kind=kind, name=name, argv=args, place=place, zygote=self._zygote)
        order.update(number=0, again=False, cold="", then=None)
        command = [*args[:at], "-c", words[words.index("-c") + 1], json.dumps(order), *rest]
        keeper = popen(command, stdin=-3, start_new_session=True)  # subprocess.DEVNULL
        keeper.returncode = 0  # nobody waits for it
        for _ in range(_TRIES):
            link = _connect(place)
            if link:
                return link
            time.sleep(_PAUSE)
        raise OSError("a keeper does not answer")


def use_keepers(order: dict[str, Any], arguments: list[str]) -> None:
    """Changes subprocess.Popen so that keepers start the processes of this launcher."""
    import subprocess

    plain, keepers = subprocess.Popen.__init__, Keepers(order, arguments)

    class Worker(subprocess.Popen):  # type: ignore[type-arg]
        """A process in a keeper."""

        link: socket.socket
        named: dict[str, Any]

        def _internal_poll(self, _deadstate: Any = None) -> int | None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._wait(0)
            return self.returncode

        def _wait(self, timeout: float | None) -> int:
            if self.returncode is None:
                self.link.settimeout(timeout)
                try:
                    answer = self.link.recv(100)
                except (socket.timeout, BlockingIOError):  # noqa: UP041 - of Python 3.7
                    raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
                except OSError:
                    answer = b""  # somebody killed the keeper
                if answer == COLD:
                    self.__class__ = subprocess.Popen  # type: ignore[assignment]
                    plain(self, **self.named)
                    return self._wait(timeout)
                self.returncode = int(answer or -9)
            return self.returncode

    def begin(self: Any, *more: Any, **named: Any) -> None:
        begun = keepers.start(named, subprocess.Popen) if type(self) is subprocess.Popen and not more else None
        if begun is None:
            plain(self, *more, **named)
            return
        self.__dict__.update(dict.fromkeys(("stdin", "stdout", "stderr", "returncode")), args=named["args"])
        self.__dict__.update(link=begun[0], pid=begun[1], named=named, _child_created=True)
        self.__class__ = Worker

    subprocess.Popen.__init__ = begin  # type: ignore[method-assign]


def read_words() -> list[str]:
    """Reads the command of this process, or of the one that forked it."""
    with open("/proc/self/cmdline", "rb") as stream:
        return [word.decode(errors="surrogateescape") for word in stream.read().split(b"\0")[:-1]]


def _connect(place: str) -> socket.socket | None:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        link.connect(place)
    except ConnectionRefusedError:
        link.close()
        return None
    return link
