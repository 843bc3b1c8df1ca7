"""What measures also measures: a limit that is compared with nothing holds always."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.measure import peak_memory, wait_with_peak
from tests.servers.fault_proxy import FaultProxy
from tests.servers.running import running

MB = 1 << 20


def test_memory_that_is_free_again_counts() -> None:
    with peak_memory() as peak:
        bytearray(8 * MB)
    assert 8 * MB <= peak.bytes < 9 * MB
    with peak_memory() as peak:
        bytearray(MB)
    assert MB <= peak.bytes < 2 * MB


def test_the_memory_of_another_process() -> None:
    def used(size: int) -> int:
        program = f"import time; data = bytearray({size}); time.sleep(0.3)"
        return wait_with_peak(subprocess.Popen([sys.executable, "-c", program]))

    assert 60_000 < used(64 * MB) - used(0) < 70_000


def test_bytes_of_both_directions() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "700")
            self.end_headers()
            self.wfile.write(bytes(700))

        def log_message(self, *arguments: object) -> None:
            pass

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as upstream, FaultProxy(upstream) as proxy:
        request = urllib.request.Request(f"http://{proxy.host}/x", data=bytes(300), method="PUT")
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert len(answer.read()) == 700
        assert (proxy.bytes_up(), proxy.bytes_down(), proxy.methods()) == (300, 700, ["PUT"])
        proxy.clear()
        assert (proxy.bytes_up(), proxy.bytes_down(), proxy.methods()) == (0, 0, [])
