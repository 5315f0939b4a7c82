"""What is left behind is named; what is not is not."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from kernel.testing.leaks import Leaks


def test_a_descriptor_that_is_left_open_is_found() -> None:
    leaks = Leaks()
    read, write = os.pipe()
    assert [leak.split(":")[0] for leak in sorted(leaks.found())] == sorted(
        [f"descriptor {read}", f"descriptor {write}"]
    )
    os.close(read)
    os.close(write)
    assert leaks.found() == []


def test_a_thread_that_is_left_running_is_found() -> None:
    leaks = Leaks()
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="left behind")
    thread.start()
    assert leaks.found(timeout=0.01) == ["thread 'left behind'"]
    over.set()
    assert leaks.found() == []


class _Cycle:
    """An open pipe that only the collector of garbage closes."""

    def __init__(self) -> None:
        self.opened = os.pipe()
        self.itself = self

    def __del__(self) -> None:
        for number in self.opened:
            os.close(number)


def test_a_descriptor_that_only_a_reference_cycle_holds_is_no_leak() -> None:
    leaks = Leaks()
    _Cycle()
    assert leaks.found() == []


def test_where_nothing_is_left_nothing_is_collected(collections: list[int]) -> None:
    assert Leaks().found() == []
    assert collections == []


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generation of each full collection of garbage so far."""
    full: list[int] = []

    def note(phase: str, information: dict[str, int]) -> None:
        if phase == "start" and information["generation"] == 2:
            full.append(information["generation"])

    gc.disable()
    gc.callbacks.append(note)
    yield full
    gc.callbacks.remove(note)
    gc.enable()
