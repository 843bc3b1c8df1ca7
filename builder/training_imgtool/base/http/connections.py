"""Connections whose time limits hold even if a server sends a byte now and then.

A socket's time limit starts again with every byte. The limit of these connections applies to the whole head of an
answer, and then to each few kilobytes of its content. The limit covers only the time in which imgtool waits for bytes.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_LEAST = 4096  # bytes of content within the time limit


class _Stream(io.RawIOBase):
    """Reads from a socket; raises TimeoutError if too few bytes arrive in the time spent waiting."""

    def __init__(self, raw: Any, seconds: float | None) -> None:
        super().__init__()
        self._raw, self._seconds = raw, seconds
        self._waited, self._received = 0.0, 0
        self.in_head = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        began = time.monotonic()
        count: int | None = self._raw.readinto(buffer)
        self._waited += time.monotonic() - began
        self._received += count or 0
        if not self.in_head and self._received >= _LEAST:
            self._waited, self._received = 0.0, 0
        if count and self._seconds is not None and self._waited > self._seconds:
            raise TimeoutError("timed out")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self._stream = _Stream(sock.makefile("rb", buffering=0), sock.gettimeout())
        self.fp = io.BufferedReader(self._stream)

    def begin(self) -> None:
        super().begin()
        self._stream.in_head = False


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def bound_waits(manager: urllib3.PoolManager) -> urllib3.PoolManager:
    """Makes a pool manager use these connections, and returns it."""
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
    return manager
