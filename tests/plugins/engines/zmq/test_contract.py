"""A pair of sockets keeps the contract of engines, but for what takes confirmations, which ZMTP does not have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.testing import engine_checks
from kernel.testing.engine_checks import ENGINE_CHECKS, EngineSubject
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan
from tests.slow_checks import WAITING, parameters

__all__ = ["kernel_factory"]

FAST = {"first": 0.01, "most": 0.05}
TWO_WAY = engine_checks.isolates_a_slow_reader
# ZMTP has no confirmations (37/ZMTP).  What the operating system has is all that a sender knows.  So messages are
# confirmed before their destination has dealt with them, and those that were on the way in a lost connection are lost.
NEEDS_CONFIRMATION = (
    engine_checks.confirms_only_what_was_dealt_with,
    engine_checks.reconnects_and_loses_nothing,
)
CHECKS = [check for check in ENGINE_CHECKS if check not in NEEDS_CONFIRMATION]

Check = Callable[[EngineSubject], None]


def _subject(place: str, listens: str, dials: str, kernels: KernelFactory) -> EngineSubject:
    def socket_of(**options: object) -> EnginePlan:
        return EnginePlan(name="net", kind="zmq", options={"reconnect": FAST, **options})

    return EngineSubject(
        listen=lambda again: socket_of(type=listens, bind=[again or place]),
        dial=lambda there: socket_of(type=dials, connect=[there]),
        kernels=kernels,
    )


@pytest.fixture(params=["tcp", "ipc"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"ipc://{tmp_path}/s"


@pytest.mark.parametrize("check", parameters([check for check in CHECKS if check is not TWO_WAY], WAITING))
def test_a_push_and_a_pull(check: Check, place: str, kernel_factory: KernelFactory) -> None:
    check(_subject(place, "PULL", "PUSH", kernel_factory))


@pytest.mark.parametrize("check", parameters(CHECKS, WAITING))
def test_two_dealers(check: Check, place: str, kernel_factory: KernelFactory) -> None:
    check(_subject(place, "DEALER", "DEALER", kernel_factory))
