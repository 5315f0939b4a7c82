"""``kernel.sockets`` over ``tls``, ``ws`` and ``wss``; pyzmq's libzmq has none of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kernel.sockets import Context
from tests.system.conftest import Certificates, certificates

__all__ = ["certificates"]

TIMEOUT = 20.0


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as made:
        yield made


class Ends:
    """Makes sockets for one transport."""

    def __init__(self, context: Context, transport: str, files: Certificates) -> None:
        self._context = context
        secure = transport in ("tls", "wss")
        self._listening: dict[str, Any] = {"tls": {"certificate": files.server}} if secure else {}
        self._connecting: dict[str, Any] = {"tls": {"authorities": files.authorities}} if secure else {}
        self._place = f"{transport}://127.0.0.1:0{'' if transport == 'tls' else '/feed'}"

    def __call__(self, binds: Any, connects: Any, **options: Any) -> tuple[Any, Any]:
        bound = self._context.socket(binds, rcvtimeo=TIMEOUT, engine=self._listening)
        other = self._context.socket(connects, rcvtimeo=TIMEOUT, engine=self._connecting, **options)
        other.connect(bound.bind(self._place))
        return bound, other


@pytest.fixture(params=["tls", "ws", "wss"])
def ends(request: pytest.FixtureRequest, context: Context, certificates: Certificates) -> Ends:
    return Ends(context, request.param, certificates)


@pytest.mark.parametrize("binds", ["PULL", "PUSH"])
def test_messages_are_shared_out(ends: Ends, binds: str) -> None:
    pull, push = ends("PULL", "PUSH") if binds == "PULL" else reversed(ends("PUSH", "PULL"))
    push.send(b"one")
    push.send_many([b"", b"x" * 300_000])
    push.send_multipart([b"a", b"", b"b" * 70_000])
    assert [pull.recv() for _ in range(3)] == [b"one", b"", b"x" * 300_000]
    assert pull.recv_multipart() == [b"a", b"", b"b" * 70_000]


@pytest.mark.parametrize("binds", ["PUB", "SUB"])
def test_subscribers_get_what_they_want(ends: Ends, binds: str) -> None:
    pub, sub = ends("PUB", "SUB") if binds == "PUB" else reversed(ends("SUB", "PUB"))
    sub.subscribe("weather")
    pub.wait_for_subscribers(topic="weather", timeout=TIMEOUT)
    pub.send_multipart([b"sports", b"2:1"])
    pub.send_multipart([b"weather", b"sunny"])
    assert sub.recv_multipart() == [b"weather", b"sunny"]
    sub.unsubscribe("weather")
    pub.wait_for_subscribers(0, timeout=TIMEOUT)


def test_a_peer_without_the_authority_does_not_get_in(context: Context, certificates: Certificates) -> None:
    pull = context.socket("PULL", engine={"tls": {"certificate": certificates.server}})
    push = context.socket("PUSH", linger=0, reconnect=0.01)
    with push.monitor() as monitor:
        push.connect(pull.bind("tls://127.0.0.1:0"))
        reason = next(event.reason for event in monitor if event.what == "retrying")
    assert "certificate" in reason.lower()
