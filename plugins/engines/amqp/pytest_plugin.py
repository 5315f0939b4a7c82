"""Fixtures of the AMQP server for tests of other projects (entry point ``pytest11``).

``amqp_broker`` is an AMQP 0-9-1 broker in the test's own process, on a free port, new for each test.  What it
is made of is loaded when a test asks for it, because pytest loads this module in every project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kernel import Kernel

START_TIMEOUT = 60.0


class AmqpBroker:
    """A running broker, and how to reach it."""

    def __init__(self, kernel: Kernel, host: str, port: int) -> None:
        self.kernel = kernel
        self.host = host
        self.port = port

    @property
    def url(self) -> str:
        """The address as AMQP clients want it, for guest/guest and the virtual host ``/``."""
        return f"amqp://guest:guest@{self.host}:{self.port}/"

    def __repr__(self) -> str:
        return f"<AmqpBroker {self.host}:{self.port}>"


@pytest.fixture
def amqp_broker_options() -> dict[str, Any]:
    """Options of ``amqp_broker`` as in a topology file.

    Override the fixture to have exchanges, queues or users.
    """
    return {}


@pytest.fixture
def amqp_broker(amqp_broker_options: dict[str, Any]) -> Iterator[AmqpBroker]:
    """Start a broker on a free port of 127.0.0.1; it is gone after the test."""
    from kernel import EnginePlan, Kernel, Plan

    options = {"address": "127.0.0.1:0", **amqp_broker_options}
    with Kernel(Plan(engines=(EnginePlan(name="broker", kind="amqp", options=options),))) as kernel:
        kernel.wait_running(START_TIMEOUT)
        host, _, port = kernel.address_of("broker").rpartition(":")
        yield AmqpBroker(kernel, host, int(port))
        kernel.close(linger=0)  # nobody reads what a failed test has left in its queues
