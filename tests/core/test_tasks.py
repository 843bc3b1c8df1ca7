"""A pool of threads and its tasks: order, limits, failures, and what is given up."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from training_imgtool.core.tasks import GivenUpError, Pool, Task


def test_results_and_failures_reach_all_who_wait() -> None:
    pool = Pool(2, "test")
    assert pool.submit(divmod, 7, 2).result() == (3, 1)
    assert pool.submit(int, "11", base=2).result() == 3
    wrong = pool.submit(int, "x")
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            wrong.result()
    assert isinstance(wrong.error(), ValueError)
    assert wrong.done()


def test_tasks_begin_in_order_and_no_more_at_a_time_than_said() -> None:
    lock, begun, now, most = threading.Lock(), [], [0], [0]

    def work(number: int) -> None:
        with lock:
            begun.append(number)
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.002)
        with lock:
            now[0] -= 1

    pool = Pool(3, "test")
    tasks = [pool.submit(work, number) for number in range(40)]
    for task in tasks:
        task.result()
    assert most[0] == 3
    assert sorted(begun) == list(range(40))
    assert all(abs(place - number) < 3 for place, number in enumerate(begun))


def test_what_has_not_begun_is_given_up_and_the_rest_ends() -> None:
    go_on, begun = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        go_on.wait(10)
        return "ended"

    pool = Pool(1, "test")
    first, second = pool.submit(work), pool.submit(work)
    begun.wait(10)
    pool.shutdown(wait=False, cancel=True)
    with pytest.raises(GivenUpError):
        second.result()
    assert not first.done()
    go_on.set()
    assert first.result() == "ended"
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(work)
    pool.shutdown(cancel=True)


def test_shutdown_waits_for_all_that_was_handed_in() -> None:
    ended: list[int] = []

    def work(number: int) -> None:
        time.sleep(0.002)
        ended.append(number)

    pool = Pool(2, "test")
    for number in range(6):
        pool.submit(work, number)
    pool.shutdown()
    assert sorted(ended) == list(range(6))


def test_a_task_may_hand_in_another() -> None:
    pool = Pool(1, "test")
    assert pool.submit(lambda: pool.submit(int, 5)).result().result() == 5


def test_hand_made_tasks() -> None:
    task: Task[int] = Task()
    waiting = Pool(2, "test")
    found = [waiting.submit(task.result) for _ in range(2)]
    assert not task.done()
    task.end(7)
    assert [one.result() for one in found] == [7, 7]


def test_a_pool_that_is_forgotten_keeps_no_process() -> None:
    program = (
        "from training_imgtool.core.tasks import Pool; p = Pool(2, 'x'); print(p.submit(int, 3).result(), flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout == "3\n"
