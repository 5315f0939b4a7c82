"""An endpoint gets every pair of chunks in one packet, in every state, with tags and cookies that are right.

What a peer bundles is its own affair, also where the RFC forbids it: no packet may raise, since that would end
the engine with all its associations.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest

from plugins.protocols.sctp import parameters
from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.chunks import (
    REFLECTED,
    Chunk,
    Data,
    Forward,
    Init,
    Listed,
    Plain,
    Sack,
    Shutdown,
    Type,
)
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.parameters import Kind, Parameter
from plugins.protocols.sctp.states import State
from tests.plugins.protocols.sctp.network import PORT_A, PORT_B, QUICK, Network, Side, address
from tests.plugins.protocols.sctp.test_setup import INIT, answers, packet

OPTIONS = msgspec.structs.replace(QUICK, ecn=True)


class Scene(msgspec.Struct):
    """An endpoint under test, and what its peer would know."""

    endpoint: Endpoint
    association: Association | None
    ports: tuple[int, int]
    """The peer's and the endpoint's."""
    source: bytes
    now: float
    cookie: bytes = b""
    cookie_tag: int = 0

    @property
    def tag(self) -> int:
        return self.association.tag if self.association is not None else self.cookie_tag

    @property
    def next_tsn(self) -> int:
        received = self.association.receiver if self.association is not None else None
        return (received.received.cumulative + 1 if received is not None else INIT.tsn) & 0xFFFF_FFFF

    @property
    def last_sent(self) -> int:
        return self.association.sender.outstanding.next_tsn - 1 & 0xFFFF_FFFF if self.association else 0


def whole(scene: Scene, body: bytes, *, interleaved: bool) -> Data:
    return Data(tsn=scene.next_tsn, stream=0, number=0, flags=0x03, data=body, interleaved=interleaved)


CHUNKS: dict[str, Callable[[Scene], Chunk]] = {
    "DATA": lambda scene: whole(scene, b"x", interleaved=False),
    "DATA without data": lambda scene: whole(scene, b"", interleaved=False),
    "I-DATA": lambda scene: whole(scene, b"x", interleaved=True),
    "INIT": lambda scene: INIT,
    "INIT ACK": lambda scene: Init(
        is_ack=True, tag=7, window=65536, outbound=3, inbound=3, tsn=9,
        parameters=(Parameter(Kind.STATE_COOKIE, b"cookie"),),
    ),
    "INIT ACK without cookie": lambda scene: Init(
        is_ack=True, tag=7, window=65536, outbound=3, inbound=3, tsn=9
    ),
    "SACK": lambda scene: Sack(cumulative=scene.last_sent, window=65536),
    "SACK of what was not sent": lambda scene: Sack(
        cumulative=scene.last_sent + 5 & 0xFFFF_FFFF, window=0, gaps=((2, 3),)
    ),
    "HEARTBEAT": lambda scene: Listed(Type.HEARTBEAT, (Parameter(Kind.HEARTBEAT_INFO, b"12345"),)),
    "HEARTBEAT ACK": lambda scene: Listed(Type.HEARTBEAT_ACK),
    "ABORT": lambda scene: Listed(Type.ABORT),
    "ABORT with T": lambda scene: Listed(Type.ABORT, (), REFLECTED),
    "SHUTDOWN": lambda scene: Shutdown(scene.last_sent),
    "SHUTDOWN ACK": lambda scene: Plain(Type.SHUTDOWN_ACK),
    "SHUTDOWN COMPLETE": lambda scene: Plain(Type.SHUTDOWN_COMPLETE),
    "ERROR": lambda scene: Listed(Type.ERROR, (Parameter(3, bytes(4)),)),
    "COOKIE ECHO": lambda scene: Plain(Type.COOKIE_ECHO, scene.cookie),
    "COOKIE ACK": lambda scene: Plain(Type.COOKIE_ACK),
    "ECNE": lambda scene: Plain(Type.ECHO, scene.last_sent.to_bytes(4, "big")),
    "CWR": lambda scene: Plain(Type.REDUCED, scene.last_sent.to_bytes(4, "big")),
    "FORWARD-TSN": lambda scene: Forward(cumulative=scene.next_tsn, skipped=((0, 0, False),)),
    "I-FORWARD-TSN": lambda scene: Forward(
        cumulative=scene.next_tsn, skipped=((0, 0, True),), interleaved=True
    ),
    "RE-CONFIG": lambda scene: Listed(
        Type.RE_CONFIG, (Parameter(13, bytes(4) + bytes(4) + scene.next_tsn.to_bytes(4, "big")),)
    ),
    "PAD": lambda scene: Plain(Type.PAD, bytes(4)),
    "unknown, to be reported": lambda scene: Plain(0xFE, b"?"),
    "unknown, the last one": lambda scene: Plain(0x3E, b"?"),
}  # fmt: skip


def scene_of(side: Side, peer: Side, now: float) -> Scene:
    association = side.association
    scene = Scene(side.endpoint, association, (peer.port, side.port), peer.addresses[0], now)
    return with_cookie(scene)


def with_cookie(scene: Scene) -> Scene:
    """Ask for a cookie, as a peer does that begins anew."""
    theirs, ours = scene.ports
    init = packet(0, INIT, source=theirs, destination=ours)
    for answer in answers(scene.endpoint, init, scene.source, scene.now):
        for chunk in answer.chunks:
            if isinstance(chunk, Init):
                scene.cookie_tag = chunk.tag
                scene.cookie = parameters.first(chunk.parameters, Kind.STATE_COOKIE) or b""
    return scene


def in_state(state: State) -> Scene:
    """An endpoint whose association is in a state; with CLOSED it has none."""
    if state is State.CLOSED:
        return with_cookie(
            Scene(Endpoint(OPTIONS, PORT_B, bytes(32)), None, (PORT_A, PORT_B), address(9, 0), 0.0)
        )
    network = Network(a=OPTIONS, b=OPTIONS)
    association = network.connect()
    if state not in (State.COOKIE_WAIT, State.COOKIE_ECHOED):
        network.run_until(
            lambda: association.state is State.ESTABLISHED and network.b.association is not None
        )
        # Something is under way in both directions.
        association.send(0, bytes(3000))
        if state is not State.ESTABLISHED:
            association.close(network.now)
        if state is State.SHUTDOWN_RECEIVED:
            network.run_until(lambda: association.state is State.SHUTDOWN_SENT)
            # It has something to send, and so does not answer the SHUTDOWN at once.
            assert network.b.association is not None
            network.b.association.send(0, bytes(3000))
    sides = (network.a, network.b)

    def there() -> Side | None:
        return next((side for side in sides if side.association and side.association.state is state), None)

    network.run_until(lambda: there() is not None)
    side = there()
    assert side is not None
    return scene_of(side, sides[side is network.a], network.now)


@pytest.mark.slow
@pytest.mark.parametrize("state", State)
def test_no_pair_of_chunks_raises(state: State) -> None:
    scene = in_state(state)
    for first, second in itertools.product(CHUNKS, repeat=2):
        if scene.association is None or scene.association.state is not state:
            scene = in_state(state)
        # INIT has tag 0 (8.5.1, A), and COOKIE ECHO the one that the cookie gives.
        tag = {"INIT": 0, "COOKIE ECHO": scene.cookie_tag}.get(first, scene.tag)
        theirs, ours = scene.ports
        data = packet(tag, CHUNKS[first](scene), CHUNKS[second](scene), source=theirs, destination=ours)
        endpoint = scene.endpoint
        association = endpoint.receive_data(data, scene.source, scene.now)
        for each in (association, *endpoint.associations):
            if each is not None:
                each.receive(scene.now)
        endpoint.data_to_send(scene.now)
        due = endpoint.next_deadline()
        if due is not None:
            endpoint.handle_timeout(due)
            endpoint.data_to_send(due)
        assert len(endpoint.associations) <= 1, (first, second)
