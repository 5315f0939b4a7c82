"""Our own protocols keep the contract that strangers' have to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel.testing.protocol_checks import PROTOCOL_CHECKS, ProtocolSubject
from plugins.protocols.backend.connection import BackendConnection
from plugins.protocols.backend.options import BackendOptions


def backend(**options: str) -> ProtocolSubject:
    made = BackendOptions(**options)  # type: ignore[arg-type]
    return ProtocolSubject(
        make=lambda: (BackendConnection(made, "client"), BackendConnection(made, "server")),
        keys=options.get("format") != "0.x",
    )


SUBJECTS = {
    "backend": backend(),
    "backend 0.x": backend(format="0.x"),
    "backend extended": backend(format="extended"),
}


@pytest.mark.parametrize("check", PROTOCOL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SUBJECTS)
def test_protocol(name: str, check: Callable[[ProtocolSubject], None]) -> None:
    check(SUBJECTS[name])
