"""What is left behind is named; what is not is not."""

from __future__ import annotations

import os
import threading

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
