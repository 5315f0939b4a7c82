"""Operations that take several turns: other work of the thread goes on meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from queue import SimpleQueue
from typing import Any

import pytest

from kernel.contracts.errors import KernelError
from kernel.contracts.thread import Done
from tests.kernel.threads.conftest import Engine, Rig


class Busy(Engine):
    """An engine with an operation that is done when somebody says so."""

    finished = False

    def operate(self, what: str, argument: Any) -> Generator[None, None, Any]:
        while not self.finished:
            yield
        if what == "fail":
            raise KernelError("it has failed")
        return argument


@pytest.fixture
def busy(rig: Rig) -> Busy:
    engine = Busy()
    rig.run("busy", engine)
    return engine


def _finish(engine: Busy) -> None:
    engine.finished = True


def test_the_thread_does_other_things_meanwhile(rig: Rig, busy: Busy) -> None:
    answers: SimpleQueue[Done] = SimpleQueue()
    rig.thread.operate("busy", "work", 5, answers.put)
    rig.thread.operate("busy", "work", 6, answers.put)
    # In the same thread: without turns for others it would never be called.
    rig.call(lambda: _finish(busy))
    assert [answers.get(timeout=30), answers.get(timeout=30)] == [(5, None), (6, None)]


def test_a_failure_is_the_answer(rig: Rig, busy: Busy) -> None:
    answers: SimpleQueue[Done] = SimpleQueue()
    rig.thread.operate("busy", "fail", None, answers.put)
    rig.call(lambda: _finish(busy))
    result, failure = answers.get(timeout=30)
    assert (result, str(failure)) == (None, "it has failed")


def test_it_ends_with_its_engine(rig: Rig, busy: Busy) -> None:
    answers: SimpleQueue[Done] = SimpleQueue()
    rig.thread.operate("busy", "work", None, answers.put)
    rig.thread.remove("busy")
    result, failure = answers.get(timeout=30)
    assert (result, str(failure)) == (None, "it has ended before it was done")
