"""The usual mistakes in a protocol are said with its class and method, and nothing is lost without a word."""

from __future__ import annotations

import socket
from types import ModuleType
from typing import Any

import pytest

from kernel import hookimpl
from kernel.contracts.errors import PluginError
from kernel.contracts.kinds import NoOptions, ProtocolKind
from kernel.contracts.message import Batch, batch_of
from kernel.hosting.blocking_host import BlockingHost
from kernel.hosting.stream_host import StreamHost
from kernel.hosting.stream_statistics import StreamStatistics
from kernel.hosting.wire import PlainWire
from kernel.plugins import Origin, PluginRegistry
from kernel.testing import protocol_checks
from kernel.testing.memory_wire import SimulatedHost
from kernel.testing.protocol_checks import ProtocolSubject
from tests.line_protocol import LineProtocol
from tests.notes import for_each


def _mistaken(**methods: Any) -> Any:
    """Return a protocol with these methods in the place of good ones."""
    return type("Mistaken", (LineProtocol,), methods)()


def _none(self: Any, *_: Any) -> None:
    """What a method returns whose author has forgotten the ``return``."""


def _as_lines(self: LineProtocol, data: bytes, now: float) -> Any:
    return self.lines(data)


def _as_batch(self: LineProtocol, data: bytes, now: float) -> Any:
    return batch_of(self.lines(data))


def _joined(self: LineProtocol) -> Any:
    return b"".join(self._out)


def _as_text(self: LineProtocol) -> Any:
    return [bytes(each).decode() for each in self._out]


async def _later(self: LineProtocol, data: bytes, now: float) -> list[Batch]:
    return LineProtocol.receive_data(self, data, now)


def _piecemeal(self: LineProtocol, data: bytes, now: float) -> Any:
    yield from LineProtocol.receive_data(self, data, now)


def _converse(protocol: Any) -> None:
    """Have a stream host receive a message of a peer, and send one."""
    host: Any = SimulatedHost()
    here, _ = host.wire()
    stream = StreamHost(
        host,
        here,
        protocol,
        peer="there",
        counters=StreamStatistics(),
        open_port=lambda conversation: host.port("net", conversation),
        on_open=lambda: None,
        on_end=lambda conversation, reason: None,
    )
    stream.start()
    stream.on_data(b"a message\n", 0.0)
    stream._protocol.send_batches([batch_of([b"an answer"])], 0.0)
    stream._flush()


RETURNED = [
    ({"receive_data": _none}, "receive_data has returned None; it has to return a list of batches"),
    ({"receive_data": _as_lines}, r"receive_data has returned \[b'a message'\]; it has to"),
    ({"receive_data": _as_batch}, r"receive_data has returned Batch\(.*\.\.\.; it has to"),
    ({"data_to_send": _none}, "data_to_send has returned None; it has to return a list of bytes"),
    ({"data_to_send": _joined}, r"data_to_send has returned b'an answer\\n'; it has to"),
    ({"data_to_send": _as_text}, r"data_to_send has returned \['an answer\\n'\]; it has to"),
    ({"ready_to_send": _none}, "ready_to_send has returned None; it has to return True or False"),
]


@for_each("methods, said", RETURNED)
def test_what_a_method_must_not_return_is_said_with_class_and_method(
    methods: dict[str, Any], said: str
) -> None:
    with pytest.raises(PluginError, match=rf"test_protocol_mistakes\.Mistaken\.{said}"):
        _converse(_mistaken(**methods))


def test_what_is_right_is_not_complained_of() -> None:
    _converse(_mistaken())
    # Of another kind of sequence, and empty.
    _converse(_mistaken(receive_data=lambda self, data, now: (), data_to_send=lambda self: (b"more",)))


@for_each("methods, said", [RETURNED[0], *RETURNED[3:5]])
def test_a_direct_channel_says_the_same(methods: dict[str, Any], said: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"a message\n")
        with pytest.raises(PluginError, match=rf"Mistaken\.{said}"):
            _exchange(BlockingHost(PlainWire(ours), _mistaken(**methods), "them", 60))


def _exchange(host: BlockingHost) -> None:
    host.receive()
    host.send(b"an answer")


CLASSES = [
    ({"confirm": None}, "Mistaken has no method `confirm`"),
    # An attribute in the place of a method.
    ({"closed": False}, "Mistaken has no method `closed`"),
    ({"__init__": _none}, "Mistaken has no list `subscriptions`"),
    ({"receive_data": _later}, "Mistaken.receive_data is `async def`; a protocol does not wait"),
    ({"receive_data": _piecemeal}, "Mistaken.receive_data has a `yield`; it has to return"),
]


@for_each("methods, said", CLASSES)
def test_a_class_that_misses_the_contract_is_refused_before_any_peer_comes(
    methods: dict[str, Any], said: str
) -> None:
    with pytest.raises(PluginError, match=rf"protocol 'bad' of plugin 'bad' of dist 1: .*\.{said}"):
        _maker(lambda options, side: _mistaken(**methods))("bad", {}, "client")


def test_a_kind_that_makes_nothing_is_told_so() -> None:
    with pytest.raises(PluginError, match="protocol 'bad' of .*: `create` has returned None"):
        _maker(lambda options, side: None)("bad", {}, "client")


def _maker(create: Any) -> Any:
    module = ModuleType("made")
    kinds = [ProtocolKind(name="bad", summary="s", options=NoOptions, create=create)]
    module.register_protocols = hookimpl(lambda: kinds)  # type: ignore[attr-defined]
    registry = PluginRegistry.load([])
    registry.add(module, Origin("bad", "dist", "1"))
    return registry.protocol_maker()


@for_each("methods, said", [RETURNED[0], RETURNED[3], *CLASSES])
def test_the_shipped_checks_say_it_too(methods: dict[str, Any], said: str) -> None:
    subject = ProtocolSubject(make=lambda: (_mistaken(**methods), _mistaken(**methods)))
    with pytest.raises(AssertionError, match=said):
        protocol_checks.whole(subject)
