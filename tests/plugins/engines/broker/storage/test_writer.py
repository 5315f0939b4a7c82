"""The thread that writes: what it does is told in the broker's thread, and a failure of its own is, too."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

import pytest

from plugins.engines.broker.storage.writer import WriterThread

TIMEOUT = 10.0


def test_work_is_done_in_order_and_told_where_the_broker_runs() -> None:
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    writer = WriterThread("writer", posted.put)
    told: list[int] = []

    def work(number: int) -> Callable[[], None]:
        return lambda: told.append(number)

    for number in range(3):
        writer.submit(lambda number=number: work(number))  # type: ignore[misc]
    assert told == []
    for _ in range(3):
        posted.get(timeout=TIMEOUT)()
    assert told == [0, 1, 2]
    writer.close()


def test_an_end_waits_for_no_further_attempt() -> None:
    writer = WriterThread("writer", lambda _: None)
    told: list[int] = []
    writer.submit(lambda: lambda: told.append(1), delay=3600.0)
    writer.close()
    assert told == [1]


def test_a_fault_of_the_program_is_raised_where_the_broker_runs_and_the_end_does_not_wait_for_ever() -> None:
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    writer = WriterThread("writer", posted.put)

    def work() -> Callable[[], None]:
        raise ZeroDivisionError("a fault")

    writer.submit(work)
    deliver = posted.get(timeout=TIMEOUT)
    with pytest.raises(ZeroDivisionError, match="a fault"):
        deliver()
    writer.submit(work)
    with pytest.raises(ZeroDivisionError, match="a fault"):
        writer.wait()
    writer.close()
