"""What is left behind is named; what is not is not."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

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


def test_what_libffi_keeps_open_once_ctypes_is_imported_is_no_leak(tmp_path: Path) -> None:
    leaks = Leaks()
    with (tmp_path / "libffi.so.8.5.0").open("w"):
        assert leaks.found() == []
    with (tmp_path / "libffi.txt").open("w"):
        assert len(leaks.found()) == 1


def test_a_thread_that_is_left_running_is_found() -> None:
    leaks = Leaks()
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="left behind")
    thread.start()
    assert leaks.found(timeout=0.01) == ["thread 'left behind'"]
    over.set()
    assert leaks.found() == []


def test_a_thread_that_trio_keeps_for_later_work_is_no_leak_and_not_waited_for() -> None:
    leaks = Leaks()
    trio.run(_start_threads_at_once)
    waiting = _threads_of_trio()
    assert waiting
    assert leaks.found() == []
    assert _threads_of_trio() == waiting, "they end when they had nothing to do for some seconds"


async def _start_threads_at_once() -> None:
    """Have as many threads as trio keeps from other tests, and one more."""
    together = threading.Barrier(len(_threads_of_trio()) + 1)
    async with trio.open_nursery() as nursery:
        for _ in range(together.parties):
            nursery.start_soon(trio.to_thread.run_sync, together.wait)


def _threads_of_trio() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("Trio thread")}


def test_a_thread_of_trio_that_still_works_is_found() -> None:
    leaks = Leaks()
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait()

    async def leave_it() -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(trio.to_thread.run_sync, work, abandon_on_cancel=True))
                while not begun.is_set():
                    await trio.lowlevel.checkpoint()
                scope.cancel()

    trio.run(leave_it)
    (found,) = leaks.found(timeout=0.01)
    assert "work from" in found
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
