"""A login that fails is answered late, so that passwords and keys cannot be tried quickly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernel.contracts.kinds import EngineSetup
from kernel.contracts.protocol import Side
from kernel.hosting.failed_logins import LOGIN_DELAY
from kernel.testing.memory_wire import MemoryWire, SimulatedHost
from plugins.engines.zmq.engine import ZmqEngine
from plugins.engines.zmq.options import ZmqOptions

Options = dict[str, Any]


def plain() -> tuple[Options, Options]:
    """A server that has nobody to ask, and a client with a password."""
    return {"authenticator": "door"}, {"username": "anna", "password": "guess"}


def curve() -> tuple[Options, Options]:
    """A server that knows one key, and a client with another one."""
    pytest.importorskip("nacl")
    from plugins.protocols.zmtp.curve import pair_of

    server, anna, eve = (pair_of(bytes([number]) * 32) for number in (1, 2, 3))
    known = {"curve_secret_key": server.secret, "curve_clients": {"anna": anna.public}}
    return known, {"curve_secret_key": eve.secret, "curve_server_key": server.public}


class Pair:
    """A socket and its peer on a simulated clock, with a wire in between."""

    def __init__(self, server: Options, client: Options, **common: Any) -> None:
        self.host = SimulatedHost()
        self.ended: dict[str, float] = {}
        for name, wire, options in zip(("PULL", "PUSH"), self.host.wire(), (server, client), strict=True):
            place = "bind" if name == "PULL" else "connect"
            made = ZmqOptions(type=name, **{place: ("tcp://127.0.0.1:1",)}, **common, **options)
            self._begin(name, wire, made)

    def _begin(self, name: str, wire: MemoryWire, options: ZmqOptions) -> None:
        engine = ZmqEngine(EngineSetup(name=name, options=options, make_protocol=_none))
        host: Any = self.host
        engine.host = host
        side: Side = "server" if name == "PULL" else "client"

        def on_end(_: str) -> None:
            self.ended.setdefault(name, self.host.now())

        engine.converse(
            wire,
            name,
            side,
            open_port=lambda conversation: self.host.port(name, conversation),
            on_open=lambda: None,
            on_end=on_end,
        )

    def said(self) -> list[str]:
        return [f"{event.engine} {event.what}: {event.detail}" for event in self.host.events]


def _none(*_: Any) -> Any:
    raise AssertionError("these sockets make their protocols themselves")


@pytest.mark.parametrize("keys", [plain, curve])
def test_the_operator_is_told_at_once_and_the_peer_later(keys: Callable[[], tuple[Options, Options]]) -> None:
    server, client = keys()
    pair = Pair(server, client, mechanism=keys.__name__.upper())
    pair.host.run(until=LOGIN_DELAY * 0.9)
    (refused,) = pair.said()
    assert refused.startswith("PULL refused: login of ")
    assert pair.ended == {}
    pair.host.run(until=LOGIN_DELAY * 2)
    assert pair.ended == {"PULL": LOGIN_DELAY, "PUSH": LOGIN_DELAY}
