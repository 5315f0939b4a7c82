"""Setting up against odds: collisions, restarts, cookies, and the attacks of RFC 5062."""

from __future__ import annotations

import gc
import random
import tracemalloc
from functools import partial

import msgspec
import pytest

from plugins.protocols.sctp import chunks, packets, parameters
from plugins.protocols.sctp.chunks import Data, Init, Listed, Plain, Sack, Type
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.handshake import open_cookie
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.parameters import Cause, Kind, Parameter
from plugins.protocols.sctp.states import State
from tests.notes import for_each
from tests.plugins.protocols.sctp.network import PORT_A, PORT_B, QUICK, Network, Weather, address
from tests.seeds import many

KEY = bytes(range(32))
PEER = address(9, 0)
INIT = Init(is_ack=False, tag=77, window=65536, outbound=3, inbound=3, tsn=1000)


def packet(tag: int, *carried: chunks.Chunk, source: int = PORT_A, destination: int = PORT_B) -> bytes:
    return packets.encode(source, destination, tag, [chunks.encode(chunk) for chunk in carried])


def answers(endpoint: Endpoint, data: bytes, source: bytes = PEER, now: float = 0.0) -> list[packets.Packet]:
    endpoint.receive_data(data, source, now)
    return [packets.decode(answer) for _, answer in endpoint.data_to_send(now)]


def init_ack(endpoint: Endpoint, now: float = 0.0) -> tuple[Init, bytes]:
    """INIT ACK and its cookie."""
    (answer,) = answers(endpoint, packet(0, INIT), now=now)
    (ack,) = answer.chunks
    assert isinstance(ack, Init)
    cookie = parameters.first(ack.parameters, Kind.STATE_COOKIE)
    assert cookie is not None
    return ack, cookie


@pytest.fixture
def listener() -> Endpoint:
    return Endpoint(QUICK, PORT_B, KEY)


# ---------------------------------------------------------------------- cookies


def test_an_init_leaves_nothing_behind_and_the_cookie_opens(listener: Endpoint) -> None:
    ack, cookie = init_ack(listener)
    assert ack.is_ack
    assert listener.associations == []
    data = Data(tsn=1000, stream=0, number=0, flags=0x03, data=b"with the cookie")
    (answer,) = answers(listener, packet(ack.tag, Plain(Type.COOKIE_ECHO, cookie), data))
    assert answer.tag == INIT.tag
    assert answer.chunks[0] == Plain(Type.COOKIE_ACK)
    assert listener.associations[0].receive(0.0)[0].data == b"with the cookie"


@pytest.mark.parametrize(
    "chunk",
    [
        Listed(Type.ABORT),
        Data(tsn=1000, stream=0, number=0, flags=0x03, data=b""),
        Data(tsn=1000, stream=0, number=0, flags=0x03, data=b"x", interleaved=True),
    ],
    ids=["ABORT", "DATA without data", "I-DATA that was not agreed on"],
)
def test_a_chunk_behind_the_cookie_may_end_the_association_at_once(
    listener: Endpoint, chunk: chunks.Chunk
) -> None:
    ack, cookie = init_ack(listener)
    association = listener.receive_data(packet(ack.tag, Plain(Type.COOKIE_ECHO, cookie), chunk), PEER, 0.0)
    assert association is not None
    assert [event.what for event in association.events] == [What.UP, What.LOST]
    listener.data_to_send(0.0)
    assert listener.associations == []
    answers(listener, packet(ack.tag, Plain(Type.COOKIE_ECHO, cookie)))
    assert len(listener.associations) == 1, "the address may be used again"


def test_a_changed_cookie_is_counted_and_not_answered(listener: Endpoint) -> None:
    ack, cookie = init_ack(listener)
    for at in (0, 40, len(cookie) - 1):
        forged = bytearray(cookie)
        forged[at] ^= 1
        assert answers(listener, packet(ack.tag, Plain(Type.COOKIE_ECHO, bytes(forged)))) == []
    assert answers(listener, packet(ack.tag ^ 1, Plain(Type.COOKIE_ECHO, cookie))) == []
    assert answers(listener, packet(ack.tag, Plain(Type.COOKIE_ECHO, cookie)), address(8, 0)) == []
    assert listener.statistics.forged_cookies == 5
    assert listener.associations == []


def test_a_cookie_that_is_too_old_is_refused_and_says_how_late_it_was(listener: Endpoint) -> None:
    ack, cookie = init_ack(listener)
    (answer,) = answers(
        listener, packet(ack.tag, Plain(Type.COOKIE_ECHO, cookie)), now=QUICK.cookie_lifetime + 1.5
    )
    late = (1_500_000).to_bytes(4, "big")
    assert answer.chunks == (Listed(Type.ERROR, (Parameter(Cause.STALE_COOKIE, late),)),)
    assert listener.associations == []


@pytest.mark.parametrize(
    "made, opened, forged, stale",
    [(3590.0, 3610.0, 0, 0), (3590.0, 7190.0, 0, 1), (3590.0, 7210.0, 1, 0), (-30.0, 10.0, 0, 0)],
)
def test_the_key_of_cookies_changes_each_hour_and_the_last_one_still_counts(
    listener: Endpoint, made: float, opened: float, forged: int, stale: int
) -> None:
    ack, cookie = init_ack(listener, made)
    listener.receive_data(packet(ack.tag, Plain(Type.COOKIE_ECHO, cookie)), PEER, opened)
    found = listener.statistics
    assert (found.forged_cookies, found.stale_cookies) == (forged, stale)
    assert len(listener.associations) == (not forged and not stale)


def test_a_cookie_that_went_stale_on_the_way_is_replaced_by_another() -> None:
    network = Network(b=msgspec.structs.replace(QUICK, cookie_lifetime=0.05))
    ours = network.connect()
    network.run_until(lambda: ours.state is State.COOKIE_ECHOED)
    network._under_way.clear()  # the first COOKIE ECHO with it; the second comes too late
    network.run_until(lambda: bool(network.a.told(What.UP) and network.b.told(What.UP)))
    assert network.b.endpoint.statistics.stale_cookies == 1


def test_a_repeated_cookie_is_acknowledged_again(listener: Endpoint) -> None:
    ack, cookie = init_ack(listener)
    echo = packet(ack.tag, Plain(Type.COOKIE_ECHO, cookie))
    assert answers(listener, echo)[0].chunks == (Plain(Type.COOKIE_ACK),)
    assert answers(listener, echo)[0].chunks == (Plain(Type.COOKIE_ACK),)
    assert len(listener.associations) == 1
    assert listener.associations[0].restarts == 0


@pytest.mark.parametrize(
    "init",
    [
        msgspec.structs.replace(INIT, outbound=0),
        msgspec.structs.replace(INIT, inbound=0),
        msgspec.structs.replace(INIT, window=1000),
        msgspec.structs.replace(INIT, parameters=(Parameter(Kind.HOST_NAME, b"name"),)),
    ],
)
def test_an_init_that_cannot_be_is_answered_with_abort(listener: Endpoint, init: Init) -> None:
    (answer,) = answers(listener, packet(0, init))
    assert answer.tag == INIT.tag
    assert isinstance(answer.chunks[0], Listed)
    assert answer.chunks[0].kind == Type.ABORT


def test_unknown_parameters_are_told_in_the_answer(listener: Endpoint) -> None:
    unknown = Parameter(0xC123, b"what is this?")
    (answer,) = answers(listener, packet(0, msgspec.structs.replace(INIT, parameters=(unknown,))))
    (ack,) = answer.chunks
    assert isinstance(ack, Init)
    told = parameters.first(ack.parameters, Kind.UNRECOGNIZED)
    assert told is not None
    assert parameters.decode(told) == (unknown,)


@pytest.mark.parametrize(
    "unknown",
    [(Parameter(0xC123),) * 8180, (Parameter(0xC123, bytes(65000)),)],
    ids=["many small ones", "a large one"],
)
def test_an_init_ack_stays_small_however_many_unknown_parameters_the_init_has(
    listener: Endpoint, unknown: parameters.Parameters
) -> None:
    """RFC 9260, 12.4: reports may be omitted.  A list of them twice as long does not even fit into a chunk."""
    data = packet(0, msgspec.structs.replace(INIT, parameters=unknown))
    (answer,) = answers(listener, data)
    (ack,) = answer.chunks
    assert isinstance(ack, Init)
    assert len(packet(0, ack)) <= QUICK.packet_size
    assert parameters.first(ack.parameters, Kind.STATE_COOKIE) is not None


# ---------------------------------------------------------------------- collisions, restarts


@pytest.mark.parametrize("seed", many(0, 30))
def test_two_that_connect_at_once_make_one_association(seed: int) -> None:
    network = Network(seed, Weather(loss=0.2 if seed else 0.0, reordering=0.5, duplication=0.1))
    network.a.association = network.a.endpoint.connect([address(2, 0)], PORT_B, network.now)
    network.run(0.001 * (seed % 20))
    network.b.association = network.b.endpoint.connect([address(1, 0)], PORT_A, network.now)
    network.run_until(lambda: bool(network.a.told(What.UP) and network.b.told(What.UP)))
    network.a.endpoint.associations[0].send(0, b"from a")
    network.b.endpoint.associations[0].send(0, b"from b")
    network.run_until(lambda: bool(network.a.messages and network.b.messages))
    assert len(network.a.endpoint.associations) == len(network.b.endpoint.associations) == 1


@pytest.mark.parametrize("seed", many(0, 20))
def test_a_peer_that_has_restarted_is_taken_for_a_new_one(seed: int) -> None:
    network = Network(seed, Weather(loss=0.1, reordering=0.3))
    network.open()[0].send(0, b"before")
    network.run_until(lambda: bool(network.b.messages))
    network.a.start()
    network.connect().send(0, b"after")
    network.run_until(lambda: len(network.b.messages) == 2)
    assert network.b.told(What.RESTARTED)
    assert len(network.b.endpoint.associations) == 1


def test_an_address_that_a_peer_has_no_more_since_it_restarted_may_be_anothers() -> None:
    network = Network(paths=2)
    network.open()
    both = network.a.addresses

    def has_restarted(times: int) -> bool:
        return len(network.b.told(What.RESTARTED)) == times

    for restart in range(1, 4):
        network.a.addresses = both[:1]
        network.a.start()
        network.connect()
        network.run_until(partial(has_restarted, restart))
    assert len(network.b.endpoint._by_peer) == len(*network.b.endpoint._associations.values()) == 1
    network.a.addresses = both[1:]
    network.a.start()
    network.a.events.clear()
    network.a.association = network.a.endpoint.connect([address(2, 1)], PORT_B, network.now)
    network.run_until(lambda: bool(network.a.events))
    assert network.a.told(What.UP)
    assert len(network.b.endpoint.associations) == 2


def test_a_restart_that_brings_new_addresses_is_refused() -> None:
    network = Network()
    network.open()
    stranger = msgspec.structs.replace(INIT, parameters=(Parameter(Kind.IPV4, address(9, 0)),))
    (answer,) = answers(network.b.endpoint, packet(0, stranger), address(1, 0), network.now)
    (abort,) = answer.chunks
    assert isinstance(abort, Listed)
    assert [cause.kind for cause in abort.parameters] == [Cause.RESTART_WITH_NEW_ADDRESSES]
    assert network.b.endpoint.associations[0].state is State.ESTABLISHED


def _cookie_of_restart(network: Network) -> tuple[Init, bytes]:
    """B's answer to an INIT of A, which has an association with it."""
    (answer,) = answers(network.b.endpoint, packet(0, INIT), address(1, 0), network.now)
    (ack,) = answer.chunks
    assert isinstance(ack, Init)
    cookie = parameters.first(ack.parameters, Kind.STATE_COOKIE)
    assert cookie is not None
    return ack, cookie


def test_a_cookie_does_not_reveal_the_tags_of_the_association_that_exists() -> None:
    network = Network()
    ours, theirs = network.open()
    _, sealed = _cookie_of_restart(network)
    cookie = open_cookie(sealed, network.b.endpoint._secret, network.now)
    assert cookie is not None
    assert (cookie.tie_ours, cookie.tie_theirs) == theirs.tie_tags
    assert 0 not in theirs.tie_tags
    for tag in (ours.tag, theirs.tag):
        assert tag.to_bytes(4, "big") not in sealed


def test_a_cookie_from_before_a_restart_does_not_restart_the_association_again() -> None:
    network = Network()
    _, theirs = network.open()
    old_ack, old_cookie = _cookie_of_restart(network)
    network.a.start()
    network.connect()
    network.run_until(lambda: bool(network.b.told(What.RESTARTED)))
    tag = theirs.tag
    echo = packet(old_ack.tag, Plain(Type.COOKIE_ECHO, old_cookie))
    assert answers(network.b.endpoint, echo, address(1, 0), network.now) == []
    assert (theirs.tag, theirs.restarts) == (tag, 1)


def test_a_restart_during_the_shutdown_is_refused_and_the_shutdown_ack_repeated() -> None:
    network = Network()
    ours, theirs = network.open()
    ack, cookie = _cookie_of_restart(network)
    # A closes, and its SHUTDOWN COMPLETE is lost.
    ours.close(network.now)
    network.spoil = lambda data: (
        b"" if packets.decode(data).chunks[0] == Plain(Type.SHUTDOWN_COMPLETE) else data
    )
    network.run(0.05)
    assert theirs.state is State.SHUTDOWN_ACK_SENT
    found = answers(
        network.b.endpoint, packet(ack.tag, Plain(Type.COOKIE_ECHO, cookie)), address(1, 0), network.now
    )
    refusal = Listed(Type.ERROR, (Parameter(Cause.COOKIE_WHILE_SHUTTING_DOWN),))
    assert [(each.tag, each.chunks) for each in found] == [
        (INIT.tag, (refusal,)),
        (theirs.output.peer_tag, (Plain(Type.SHUTDOWN_ACK),)),
    ]
    assert theirs.state is State.SHUTDOWN_ACK_SENT


@pytest.mark.parametrize("state", [State.COOKIE_WAIT, State.COOKIE_ECHOED])
def test_an_init_may_bring_new_addresses_only_before_the_init_ack(state: State) -> None:
    network = Network()
    ours = network.connect()
    a = network.a.endpoint
    a.data_to_send(network.now)
    known, new = address(2, 0), address(9, 0)
    if state is State.COOKIE_ECHOED:
        answer = Init(
            is_ack=True,
            tag=88,
            window=65536,
            outbound=3,
            inbound=3,
            tsn=1,
            parameters=(Parameter(Kind.STATE_COOKIE, b"cookie"),),
        )
        answers(a, packet(ours.tag, answer, source=PORT_B, destination=PORT_A), known, network.now)
    assert ours.state is state
    more = msgspec.structs.replace(INIT, parameters=(Parameter(Kind.IPV4, new),))
    (said,) = answers(a, packet(0, more, source=PORT_B, destination=PORT_A), known, network.now)
    (chunk,) = said.chunks
    if state is State.COOKIE_WAIT:
        assert isinstance(chunk, Init)
        assert chunk.tag == ours.tag
    else:
        listed = parameters.encode([Parameter(Kind.IPV4, new)])
        assert chunk == Listed(Type.ABORT, (Parameter(Cause.RESTART_WITH_NEW_ADDRESSES, listed),))
    assert ours.state is state
    # Without new addresses it is the collision of two handshakes.
    (said,) = answers(a, packet(0, INIT, source=PORT_B, destination=PORT_A), known, network.now)
    assert isinstance(said.chunks[0], Init)
    assert ours.state is state


# ---------------------------------------------------------------------- attacks from beside the path


@pytest.mark.slow
def test_a_flood_of_inits_takes_no_memory(listener: Endpoint) -> None:
    def flood(count: int) -> None:
        for number in range(count):
            source = (number % 5000).to_bytes(4, "big")
            listener.receive_data(packet(0, msgspec.structs.replace(INIT, tag=number + 1)), source, 0.0)

    flood(300)  # as many answers wait now as ever will
    tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    flood(3000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert listener.associations == []
    assert grown < 3000 * 32, "bytes; an association, or a cookie, would be hundreds for each INIT"
    assert len(listener.data_to_send(0.0)) <= 256


@for_each(
    "chunk",
    [
        Listed(Type.ABORT),
        Listed(Type.ABORT, (), 1),
        Plain(Type.SHUTDOWN_COMPLETE),
        Plain(Type.SHUTDOWN_ACK),
        Plain(Type.COOKIE_ACK),
        Sack(cumulative=5, window=5),
        Data(tsn=1, stream=0, number=0, flags=3, data=b"forged"),
    ],
)
def test_packets_with_a_guessed_tag_are_counted_and_nothing_else(chunk: chunks.Chunk) -> None:
    network = Network()
    _, theirs = network.open()
    for guess in range(1, 50):
        assert answers(network.b.endpoint, packet(guess, chunk), address(1, 0), network.now) == []
    assert network.b.endpoint.statistics.wrong_tag == 49
    assert theirs.state is State.ESTABLISHED
    assert theirs.receive(network.now) == []


def test_an_abort_that_reflects_our_tag_ends_the_association() -> None:
    network = Network()
    _, theirs = network.open()
    theirs_to_us = theirs.output.peer_tag
    network.b.endpoint.receive_data(
        packet(theirs_to_us, Listed(Type.ABORT, (), 1)), address(1, 0), network.now
    )
    assert theirs.state is State.CLOSED


@pytest.mark.parametrize(
    "chunk, answer",
    [
        (Plain(Type.SHUTDOWN_ACK), Plain(Type.SHUTDOWN_COMPLETE, b"", 1)),
        (Sack(cumulative=5, window=5), Listed(Type.ABORT, (), 1)),
        (Plain(200, b"what"), Listed(Type.ABORT, (), 1)),
        (Listed(Type.ABORT), None),
        (Plain(Type.COOKIE_ACK), None),
        (Plain(Type.SHUTDOWN_COMPLETE), None),
        (Listed(Type.ERROR, (Parameter(Cause.STALE_COOKIE, b"\0\0\0\1"),)), None),
    ],
)
def test_packets_out_of_the_blue_are_answered_as_the_rfc_says(
    listener: Endpoint, chunk: chunks.Chunk, answer: chunks.Chunk | None
) -> None:
    found = answers(listener, packet(1234, chunk))
    assert [(each.tag, each.chunks) for each in found] == ([] if answer is None else [(1234, (answer,))])
    assert listener.statistics.out_of_the_blue == 1


def test_an_acknowledgement_of_what_was_not_sent_is_an_abort() -> None:
    network = Network()
    ours, _ = network.open()
    network.inject(
        network.a,
        packet(ours.tag, Sack(cumulative=5, window=5), source=PORT_B, destination=PORT_A),
        address(2, 0),
    )
    wrong = ours.sender.outstanding.next_tsn + 7 & 0xFFFF_FFFF
    network.inject(
        network.a,
        packet(ours.tag, Sack(cumulative=wrong, window=5), source=PORT_B, destination=PORT_A),
        address(2, 0),
    )
    assert ours.state is State.CLOSED
    assert ours.violations == 1


def test_unknown_chunks_are_treated_as_their_highest_bits_say() -> None:
    network = Network()
    ours, theirs = network.open()
    data = Data(tsn=ours.first_tsn, stream=0, number=0, flags=3, data=b"x", interleaved=True)
    for kind, told, taken in (
        (0x3F, False, False),
        (0x7F, True, False),
        (0xBF, False, True),
        (0xFF, True, True),
    ):
        got = answers(
            network.b.endpoint, packet(theirs.tag, Plain(kind, b"?"), data), address(1, 0), network.now + 1
        )
        reported = [
            chunk
            for each in got
            for chunk in each.chunks
            if isinstance(chunk, Listed) and chunk.kind == Type.ERROR
        ]
        assert bool(reported) is told
        assert bool(theirs.receive(network.now)) is taken
        if taken:
            data = msgspec.structs.replace(data, tsn=data.tsn + 1 & 0xFFFF_FFFF, number=data.number + 1)


# ---------------------------------------------------------------------- anything at all


def spoiled(chance: random.Random, data: bytes) -> bytes:
    """The packet with some bytes changed, and a checksum that fits."""
    body = bytearray(data)
    for _ in range(chance.randint(1, 5)):
        at = chance.choice((*range(4), *range(12, len(body))))
        body[at] = chance.randrange(256)
    source, destination, tag, _ = packets.HEADER.unpack_from(body)
    return packets.encode(source, destination, tag, [bytes(body[12:])])


@pytest.mark.parametrize("seed", many(0, 60))
def test_spoiled_packets_never_raise(seed: int) -> None:
    """With the right tag, which no stranger has: only memory safety and counting are asked for, not delivery."""
    chance = random.Random(seed)
    options: SctpOptions = (QUICK, msgspec.structs.replace(QUICK, interleaving=False))[seed % 2]
    network = Network(
        seed,
        Weather(loss=0.05, reordering=0.1),
        a=options,
        b=options,
        spoil=lambda data: spoiled(chance, data) if chance.random() < 0.3 else data,
    )
    for _ in range(6):
        association = network.connect()
        for number in range(20):
            if association.state is not State.CLOSED:
                association.send(number % 3, bytes(chance.randint(1, 3000)))
        network.run(2.0)
    counted = [msgspec.structs.astuple(side.endpoint.statistics) for side in (network.a, network.b)]
    assert sum(map(sum, counted)) > 0
    for side in (network.a, network.b):
        assert len(side.endpoint.associations) <= 12
