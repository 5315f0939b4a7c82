"""Our broker and our client as a pair keep the contract that every pair with confirmation has to keep."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel.testing.engine_checks import ENGINE_CHECKS, EngineSubject, isolates_a_slow_reader
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan
from tests.slow_checks import WAITING, parameters

# A broker has one port to the routes, not one for each peer.
CHECKS = [check for check in ENGINE_CHECKS if check is not isolates_a_slow_reader]


@pytest.mark.parametrize("check", parameters(CHECKS, WAITING))
def test_the_client_publishes_to_a_broker_that_hands_on(
    check: Callable[[EngineSubject], None], kernel_factory: KernelFactory
) -> None:
    def listen(address: str | None) -> EnginePlan:
        return EnginePlan(name="net", kind="amqp", options={"address": address or "127.0.0.1:0"})

    def dial(address: str) -> EnginePlan:
        options = {
            "addresses": [address],
            "exchange": "amq.fanout",
            "mandatory": False,
            "reconnect": {"first": 0.01, "most": 0.05},
        }
        return EnginePlan(name="net", kind="amqp-client", options=options)

    check(EngineSubject(listen=listen, dial=dial, kernels=kernel_factory))
