"""Associations between two of ours: setting up, data, losses, closing."""

from __future__ import annotations

import random

import msgspec
import pytest

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.sctp.chunks import Sack
from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.schedule import Terms
from plugins.protocols.sctp.states import State
from tests.plugins.protocols.sctp.network import QUICK, Network, Side, Weather, address
from tests.seeds import many

ROUGH = Weather(loss=0.1, duplication=0.05, reordering=0.2)
PLAIN = msgspec.structs.replace(QUICK, interleaving=False)


def by_stream(side: Side) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for message in side.messages:
        found.setdefault(message.stream, []).append(message.data)
    return found


def payload(chance: random.Random, number: int, most: int) -> bytes:
    return number.to_bytes(4, "big") + chance.randbytes(chance.randint(0, most))


@pytest.mark.parametrize("options", [QUICK, PLAIN])
def test_messages_arrive_whole_and_in_the_order_of_their_stream(options: SctpOptions) -> None:
    network = Network(a=options, b=options)
    ours, theirs = network.open()
    sent: dict[int, list[bytes]] = {}
    for number in range(200):
        data = payload(network.chance, number, 5000)
        sent.setdefault(number % 5, []).append(data)
        ours.send(number % 5, data, protocol=number)
    theirs.send(0, b"back")
    network.run_until(lambda: len(network.b.messages) == 200 and bool(network.a.messages))
    assert by_stream(network.b) == sent
    assert network.b.messages[0].protocol == 0
    assert ours.sender.interleaved is options.interleaving


def test_small_messages_share_packets() -> None:
    network = Network()
    ours, _ = network.open()
    before = network.packets
    for number in range(100):
        ours.send(0, bytes((number,)) * 20)
    network.run_until(lambda: len(network.b.messages) == 100)
    assert network.packets - before < 12


def test_a_batch_is_sent_as_its_messages_would_be() -> None:
    network = Network()
    ours, _ = network.open()
    bodies = [bytes((number,)) * (1 + 40 * number) for number in range(100)]
    handles = ours.send_many(2, bodies, protocol=7)
    network.run_until(lambda: len(network.b.messages) == 100)
    network.run(1.0)
    assert [message.data for message in network.b.messages] == bodies
    assert {(message.stream, message.protocol) for message in network.b.messages} == {(2, 7)}
    assert all(handle.is_acknowledged() for handle in handles)


def test_a_peer_may_keep_some_chunks_of_a_packet_and_not_the_others() -> None:
    """Whole packets are lost mostly; but a receiver without room may drop the chunks that it likes."""
    network = Network()
    ours, theirs = network.open()
    handles = ours.send_many(0, [bytes(50)] * 12)
    ((_, packet),) = network.a.endpoint.data_to_send(network.now)
    first = ours.sender.outstanding.cumulative + 1
    for gaps, in_flight in ((((3, 4), (7, 9)), 6), (((3, 4),), 9), (((3, 4), (7, 9), (11, 11)), 5)):
        sack = Sack(cumulative=first & 0xFFFF_FFFF, window=1 << 20, gaps=gaps)
        ours.sender.on_sack(sack, network.now)
        assert ours.sender.outstanding.flight == 50 * in_flight
    network.inject(network.b, packet, address(1, 0))  # it had been late
    network.run_until(lambda: all(handle.is_acknowledged() for handle in handles))
    assert len(network.b.messages) == 12
    assert theirs.violations == ours.violations == 0


def test_a_small_message_overtakes_a_large_one_of_another_stream() -> None:
    network = Network()
    ours, _ = network.open()
    ours.send(0, bytes(200_000))
    network.run(0.03)
    ours.send(1, b"quick")
    network.run_until(lambda: len(network.b.messages) == 2)
    assert [message.stream for message in network.b.messages] == [1, 0]


def test_unordered_messages_do_not_wait() -> None:
    network = Network()
    ours, _ = network.open()
    network.cut[0] = True
    ours.send(0, b"lost at first")
    network.run(0.001)
    network.cut[0] = False
    ours.send(0, b"waits")
    ours.send(0, b"does not", terms=Terms(unordered=True))
    network.run_until(lambda: len(network.b.messages) == 3)
    assert [message.data for message in network.b.messages] == [b"does not", b"lost at first", b"waits"]


def test_a_missing_message_holds_up_its_own_stream_only() -> None:
    network = Network()
    ours, _ = network.open()
    network.cut[0] = True
    ours.send(0, b"first")
    network.run(0.001)
    network.cut[0] = False
    for stream in (0, 1, 2):
        ours.send(stream, b"second")
    network.run(0.011)
    assert sorted(message.stream for message in network.b.messages) == [1, 2]
    network.run_until(lambda: len(network.b.messages) == 4)


def talk(seed: int, weather: Weather, options: SctpOptions, *, count: int = 60, paths: int = 1) -> Network:
    """Both ways, on four streams, and close; everything must have come."""
    network = Network(seed, weather, a=options, b=options, paths=paths)
    ours, theirs = network.open()
    sent: list[dict[int, list[bytes]]] = [{}, {}]
    for number in range(count):
        for way, association in enumerate((ours, theirs)):
            data = payload(network.chance, number, network.chance.choice((10, 500, 4000)))
            stream = network.chance.randrange(4)
            sent[way].setdefault(stream, []).append(data)
            association.send(stream, data)
        if number % 20 == 0:
            network.run(network.chance.random() * 0.1)
    ours.close(network.now)
    network.run_until(lambda: bool(network.a.told(What.CLOSED)))
    network.run(400)
    assert by_stream(network.b) == sent[0]
    assert by_stream(network.a) == sent[1]
    assert not network.a.endpoint.associations
    assert not network.b.endpoint.associations
    return network


@pytest.mark.parametrize("seed", many(0, 100))
def test_everything_arrives_in_rough_weather(seed: int) -> None:
    talk(seed, ROUGH, (QUICK, PLAIN)[seed % 2])


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_everything_arrives_in_hundreds_of_rough_weathers() -> None:
    for seed in many(1000, 500):
        talk(seed, ROUGH, (QUICK, PLAIN)[seed % 2], count=20)


def test_a_closed_window_stops_the_sender_and_an_open_one_lets_it_go_on() -> None:
    small = msgspec.structs.replace(QUICK, receive_window=20_000)
    network = Network(b=small)
    ours, theirs = network.open()
    network.b.takes = False
    for _ in range(100):
        ours.send(0, bytes(1000))
    network.run(30)
    held = theirs.receiver
    assert held is not None
    assert 18_000 <= sum(len(message.data) for message in held.messages) <= 20_000
    assert ours.state is State.ESTABLISHED
    network.b.takes = True
    network.run_until(lambda: len(network.b.messages) == 100)


def test_a_peer_that_has_a_little_room_left_but_too_little_is_not_taken_for_gone() -> None:
    few = msgspec.structs.replace(QUICK, association_tries=5, rto_max=1.0)
    network = Network(a=few, b=msgspec.structs.replace(QUICK, receive_window=10_000))
    ours, _ = network.open()
    network.b.takes = False
    for _ in range(20):
        ours.send(0, bytes(1100))
    network.run(60)
    assert ours.sender.peer_window == 100
    assert not network.a.told(What.LOST)
    assert not network.a.told(What.PATH_DOWN)
    network.b.takes = True
    network.run_until(lambda: len(network.b.messages) == 20)


def test_what_was_refused_for_want_of_room_is_sent_again_as_soon_as_there_is_some() -> None:
    network = Network(b=msgspec.structs.replace(QUICK, receive_window=20_000))
    ours, _ = network.open()
    network.b.takes = False
    for _ in range(21):
        ours.send(0, bytes(1000))
    network.run(100)
    network.b.takes = True
    network.run(0.1)
    assert len(network.b.messages) == 21


def test_a_message_that_can_never_fit_ends_the_association() -> None:
    network = Network(b=msgspec.structs.replace(QUICK, receive_window=20_000))
    ours, _ = network.open()
    ours.send(0, bytes(50_000))
    network.run_until(lambda: bool(network.a.told(What.LOST)))
    assert "fill the receive window" in network.b.told(What.LOST)[0].detail


def test_closing_waits_until_the_peer_has_everything() -> None:
    network = Network(3, ROUGH)
    ours, _ = network.open()
    for number in range(50):
        ours.send(0, number.to_bytes(2, "big") * 500)
    ours.close(network.now)
    with pytest.raises(LocalProtocolError, match="does not accept messages"):
        ours.send(0, b"late")
    network.run_until(lambda: bool(network.a.told(What.CLOSED) and network.b.told(What.CLOSED)))
    assert len(network.b.messages) == 50
    assert network.b.told(What.SHUTTING_DOWN)


def test_a_shutdown_that_takes_too_long_is_an_abort() -> None:
    network = Network(a=msgspec.structs.replace(QUICK, association_tries=10_000, path_tries=10_000))
    ours, _ = network.open()
    network.cut[0] = True
    ours.close(network.now)
    begun = network.now
    network.run_until(lambda: bool(network.a.told(What.LOST)), most=60)
    assert network.now - begun == pytest.approx(5 * QUICK.rto_max)
    assert network.a.told(What.LOST)[0].detail == "the shutdown was not completed in time"


def test_a_stream_that_is_worth_more_goes_first() -> None:
    network = Network(a=msgspec.structs.replace(QUICK, schedule="priority"))
    ours, _ = network.open()
    ours.rank_stream(2, priority=-1)
    for stream in (1, 2):
        for _ in range(30):
            ours.send(stream, bytes(1000))
    network.run_until(lambda: len(network.b.messages) == 60)
    assert [message.stream for message in network.b.messages] == [2] * 30 + [1] * 30


def test_a_lost_piece_that_fills_its_packet_is_not_held_up_by_an_acknowledgement() -> None:
    network = Network(a=PLAIN, b=PLAIN)
    ours, theirs = network.open()
    network.cut[0] = True
    ours.send(0, bytes(5 * (PLAIN.packet_size - 28)))
    network.run(0.001)
    network.cut[0] = False
    network.run(0.15)
    theirs.send(0, b"x")  # its acknowledgement waits when the time-out comes
    network.run(0.1)
    assert len(network.a.messages) == 1
    assert network.b.messages or ours.sender.outstanding.retransmitted > 0


def test_both_sides_may_close_at_once() -> None:
    network = Network()
    ours, theirs = network.open()
    ours.close(network.now)
    theirs.close(network.now)
    network.run_until(lambda: bool(network.a.told(What.CLOSED) and network.b.told(What.CLOSED)))


def test_whoever_connects_again_at_once_ends_what_the_peer_has_left_of_the_association_before() -> None:
    network = Network()
    ours, theirs = network.open()
    ours.close(network.now)
    network.run_until(lambda: ours.state is State.SHUTDOWN_SENT)
    network.run_until(lambda: theirs.state is State.SHUTDOWN_ACK_SENT)
    theirs.paths.all[0].rto = 5.0
    ours.abort()  # of which the peer hears nothing
    network.a.endpoint.data_to_send(network.now)
    network.a.events.clear()
    network.b.events.clear()
    begun = network.now
    network.connect()
    network.run_until(lambda: bool(network.a.told(What.UP)))
    assert network.now - begun < 2 * QUICK.rto_initial
    assert [event.what for event in network.b.events] == [What.CLOSED, What.UP]


def test_a_heartbeat_that_is_answered_after_the_shutdown_does_not_abort_it() -> None:
    """HEARTBEAT ACK comes on one path when SHUTDOWN ACK has come on the other, and SHUTDOWN COMPLETE is still under way."""
    network = Network(paths=2)
    ours, _ = network.open()
    network.run(1.0)
    network.weather = [Weather(delay=0.05), Weather(delay=0.1)]
    path = ours.paths.at(address(2, 1))
    assert path is not None
    path.heartbeat_due = network.now
    network.run(0.0)
    assert path.heartbeat_sent is not None
    ours.close(network.now)
    network.run(0.06)
    network.weather[1] = Weather(delay=0.01)
    network.run(1.0)
    assert network.a.endpoint.statistics.out_of_the_blue == 1
    assert network.a.told(What.CLOSED)
    assert network.b.told(What.CLOSED)
    assert network.b.told(What.LOST) == []


def test_data_for_an_association_that_was_aborted_is_answered_with_abort_as_the_first_one_may_be_lost() -> (
    None
):
    network = Network()
    ours, theirs = network.open()
    network.cut = [True]
    ours.abort()
    network.run(0.1)
    network.cut = [False]
    theirs.send(0, b"is anybody there?")
    network.run(0.1)
    assert network.b.told(What.LOST)


@pytest.mark.parametrize(
    "state, told",
    [
        (State.SHUTDOWN_ACK_SENT, What.CLOSED),
        (State.SHUTDOWN_SENT, What.LOST),
        (State.ESTABLISHED, What.LOST),
    ],
)
def test_a_peer_whose_endpoint_is_gone_has_closed_if_only_its_last_word_is_missing(
    state: State, told: What
) -> None:
    network = Network()
    ours, theirs = network.open()
    if state is State.ESTABLISHED:
        under_test, side = theirs, network.b
    else:
        ours.close(network.now)
        under_test, side = (theirs, network.b) if state is State.SHUTDOWN_ACK_SENT else (ours, network.a)
        network.run_until(lambda: under_test.state is state)
    under_test.peer_is_gone("nobody listens")
    network.run(0.0)
    assert [event.what for event in side.events if event.what in (What.CLOSED, What.LOST)] == [told]
    assert not side.endpoint.associations


def test_the_end_is_told_once_though_several_timers_say_so() -> None:
    network = Network(a=msgspec.structs.replace(QUICK, association_tries=1, heartbeat=0.3))
    ours, _ = network.open()
    network.run(1)
    network.cut[0] = True
    network.run_until(lambda: ours.paths.all[0].heartbeat_sent is not None)
    ours.send(0, b"x")
    ours.paths.errors = 1
    network.a.endpoint.data_to_send(network.now)
    network.now += 10  # the host had other things to do
    network.run(5)
    assert len(network.a.told(What.LOST)) == 1


def test_an_abort_is_told_to_the_peer() -> None:
    network = Network()
    ours, _ = network.open()
    ours.abort("enough")
    network.run_until(lambda: bool(network.b.told(What.LOST)))
    assert network.b.told(What.LOST)[0].detail == "aborted by the peer: enough"


def test_a_peer_that_is_gone_is_noticed() -> None:
    network = Network(a=msgspec.structs.replace(QUICK, association_tries=4))
    ours, _ = network.open()
    network.cut[0] = True
    ours.send(0, b"anybody there?")
    network.run_until(lambda: bool(network.a.told(What.LOST)), most=60)
    assert network.a.told(What.PATH_DOWN) == []


def test_nobody_there_ends_after_the_tries() -> None:
    network = Network(a=msgspec.structs.replace(QUICK, init_tries=3))
    network.cut[0] = True
    network.connect()
    network.run_until(lambda: bool(network.a.told(What.LOST)))
    assert network.packets == 4


def test_streams_and_messages_that_there_are_not_are_refused_here() -> None:
    network = Network(b=msgspec.structs.replace(QUICK, streams_in=3))
    ours, _ = network.open()
    with pytest.raises(LocalProtocolError, match="0 to 2"):
        ours.send(3, b"x")
    with pytest.raises(LocalProtocolError, match="one byte"):
        ours.send(0, b"")


def test_tsns_stream_numbers_and_tags_wrap_around() -> None:
    network = Network(5, ROUGH, a=PLAIN)
    ours = network.connect()
    ours.first_tsn = 0xFFFF_FFF0
    ours.sender.outstanding.next_tsn = ours.first_tsn
    ours.sender.outstanding.cumulative = ours.sender.outstanding.advanced = ours.first_tsn - 1
    network.a.endpoint.data_to_send(network.now)  # the INIT with the other TSN is lost
    ours.sender.numbers[False][0] = 0
    network.run_until(lambda: bool(network.b.told(What.UP) and network.a.told(What.UP)))
    ours.sender.numbers[False][0] = 0xFFF8
    assert network.b.association is not None
    assert network.b.association.receiver is not None
    network.b.association.receiver.expected[False][0] = 0xFFF8
    for number in range(100):
        ours.send(0, number.to_bytes(2, "big") * 700)
    network.run_until(lambda: len(network.b.messages) == 100)
    assert [message.data[:2] for message in network.b.messages] == [n.to_bytes(2, "big") for n in range(100)]
