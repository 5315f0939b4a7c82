"""Our own engines keep the contract that strangers' have to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.testing.engine_checks import ENGINE_CHECKS, EngineSubject
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan
from tests.plugins.engines.sctp import plans as sctp
from tests.ports import free_port
from tests.slow_checks import WAITING, parameters


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_stream(
    check: Callable[[EngineSubject], None], kernel_factory: KernelFactory, tmp_path: Path
) -> None:
    _check_stream("tcp", check, kernel_factory, tmp_path)


@pytest.mark.parametrize("check", parameters(ENGINE_CHECKS, WAITING))
def test_stream_over_unix_sockets(
    check: Callable[[EngineSubject], None], kernel_factory: KernelFactory, tmp_path: Path
) -> None:
    _check_stream("unix", check, kernel_factory, tmp_path)


def _check_stream(
    transport: str, check: Callable[[EngineSubject], None], kernel_factory: KernelFactory, tmp_path: Path
) -> None:
    new = f"127.0.0.1:{free_port()}" if transport == "tcp" else f"{tmp_path}/s"

    def listen(place: str | None) -> EnginePlan:
        options = {"address": f"backend+{transport}://{place or new}", "mode": "listen"}
        return EnginePlan(name="net", kind="stream", options=options)

    def dial(place: str) -> EnginePlan:
        reconnect = {"first": 0.01, "most": 0.05}
        options = {"address": f"backend+{transport}://{place}", "reconnect": reconnect}
        return EnginePlan(name="net", kind="stream", options=options)

    check(EngineSubject(listen=listen, dial=dial, kernels=kernel_factory))


@pytest.mark.parametrize("check", parameters(ENGINE_CHECKS, WAITING))
def test_sctp(check: Callable[[EngineSubject], None], kernel_factory: KernelFactory) -> None:
    port = free_port()

    def listen(place: str | None) -> EnginePlan:
        return sctp.listener(place or f"127.0.0.1:{port}/{port}")

    check(EngineSubject(listen=listen, dial=sctp.dialler, kernels=kernel_factory))
