"""A direct channel (x-mode) and a kernel at the other end."""

from __future__ import annotations

import array
from typing import Any

import pytest

from kernel.contracts.errors import TimedOut
from kernel.testing.fixtures import KernelFactory
from tests.system.conftest import listener, route


@pytest.mark.slow
def test_what_the_application_has_dealt_with_is_confirmed_when_it_comes_back(
    kernel_factory: KernelFactory,
) -> None:
    serving = kernel_factory(listener(), route("net", "app"), route("app", "net", confirm=True))
    app = serving.open("app")
    address = f"backend+tcp://{serving.address_of('net')}"
    with kernel_factory().open("x", api="direct", address=address) as direct:
        for number in range(3):
            app.send(b"%d" % number, timeout=60)
            assert direct.receive() == b"%d" % number
            with pytest.raises(TimedOut):
                app.wait_confirmed(0.05)  # it may still be at it
            with pytest.raises(TimedOut):
                direct.receive(timeout=0)
            app.wait_confirmed(60)
        app.send_many([b"several"] * 1000)
        got = 0
        while got < 1000:
            got += len(direct.receive_many(timeout=60))
        with pytest.raises(TimedOut):
            direct.receive(timeout=0.1)
        app.wait_confirmed(60)


def test_any_buffer_counts_in_bytes_and_what_is_none_is_refused(kernel_factory: KernelFactory) -> None:
    serving = kernel_factory(listener(), route("net", "app"))
    app = serving.open("app")
    address = f"backend+tcp://{serving.address_of('net')}"
    numbers = memoryview(array.array("i", [1, 2, 3]))
    with kernel_factory().open("x", api="direct", address=address) as direct:
        direct.send(numbers)
        direct.send_many([numbers, b"2"], key="k")
        wrong: Any
        for wrong in ("text", memoryview(b"every other one")[::2]):
            with pytest.raises(TypeError):
                direct.send(wrong)
            with pytest.raises(TypeError):
                direct.send_many([wrong])
        direct.send(b"last")
        got = [bytes(app.receive(60)) for _ in range(4)]
    assert got == [bytes(numbers), bytes(numbers), b"2", b"last"]
