"""Sources and receivers on a network in memory that loses, doubles and reorders, hours of it in seconds."""

from __future__ import annotations

import pytest

from plugins.protocols.pgm import packets
from plugins.protocols.pgm.events import What
from plugins.protocols.pgm.extensions import Reset
from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions
from plugins.protocols.pgm.packets import NAK, NCF, ODATA, RDATA, SPM, Data, Request, SourcePath
from plugins.protocols.pgm.receiver import MAX_IMPOSTORS, Receiver
from plugins.protocols.pgm.source import Source
from tests.plugins.protocols.pgm.network import GROUP, PATH, PORT, TSI, Network, Weather
from tests.seeds import in_groups, many

STORM = Weather(loss=0.1, duplication=0.05, reordering=0.1, jitter=0.001)
SEEDS, MANY_SEEDS = 200, 500


def _bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def _through_a_storm(seed: int, receivers: int, count: int, first: int = 0) -> Network:
    network = Network(seed, receivers, STORM, first=first)
    network.run(0.3)
    bodies = _bodies(count)
    for at in range(0, count, 8):
        network.send(bodies[at : at + 8])
        network.run(0.004)
    network.run_until(lambda: all(len(listener.units) >= count for listener in network.listeners), 60)
    assert [listener.units == bodies for listener in network.listeners] == [True] * receivers
    return network


@pytest.mark.parametrize("seeds", in_groups(many(0, SEEDS), 20), ids=str)
def test_everything_arrives_once_and_in_order(seeds: range) -> None:
    for seed in seeds:
        _through_a_storm(seed, 2, 48, first=-20 & 0xFFFFFFFF if seed % 2 else 0)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", in_groups(many(SEEDS, MANY_SEEDS - SEEDS), 100), ids=str)
def test_everything_arrives_once_and_in_order_with_many_seeds(seeds: range) -> None:
    for seed in seeds:
        _through_a_storm(seed, 3, 100, first=-50 & 0xFFFFFFFF if seed % 2 else 0)


def test_without_loss_there_is_not_one_request() -> None:
    network = Network(receivers=2)
    network.send(_bodies(500))
    network.run(1)
    assert network.upstream == []
    assert [len(listener.units) for listener in network.listeners] == [500, 500]
    assert network.listeners[0].told(What.GAP) == []


def test_the_last_packet_is_missed_too() -> None:
    network = Network(drop=lambda packet: packet[4] == ODATA and packet[16:20] == b"\0\0\0\x04")
    network.send(_bodies(5))
    network.run(0.5)
    assert network.listeners[0].units == _bodies(5)


def test_repairs_take_milliseconds_once_the_round_trip_is_known() -> None:
    network = Network(weather=Weather(loss=0.05, delay=0.0001, jitter=0.00001))
    for body in _bodies(2000):
        network.send([body])
        network.run(0.001)
    network.run(1)
    listener = network.listeners[0]
    assert listener.units == _bodies(2000)
    late = [float(event.detail.split()[1]) for event in listener.told(What.RECOVERED)][-30:]
    assert sorted(late)[15] < 5.0, late


def test_a_burst_of_losses_is_asked_for_in_lists() -> None:
    lost = {number.to_bytes(4, "big") for number in range(10, 130)}
    network = Network(drop=lambda packet: packet[4] == ODATA and packet[16:20] in lost)
    network.send(_bodies(200))
    network.run(1)
    naks = [packets.decode(packet) for packet in network.upstream]
    assert [len(nak.numbers) for nak in naks if isinstance(nak, Request)] == [63, 57]
    assert network.listeners[0].units == _bodies(200)


@pytest.mark.slow
@pytest.mark.parametrize("receivers", [100])
def test_a_hundred_receivers_that_miss_the_same_do_not_ask_a_hundred_times(receivers: int) -> None:
    """The shared loss of each round is asked for by few: the others hear that it was."""
    network = Network(receivers=receivers, drop=lambda packet: packet[4] == ODATA and packet[19] % 10 == 9)
    rounds = 20
    for number in range(rounds):
        network.send([b"%d" % (number * 10 + at) for at in range(10)])
        network.run(0.5)
    assert all(listener.units == _bodies(10 * rounds) for listener in network.listeners)
    naks = sum(packet[4] == NAK for packet in network.upstream)
    assert naks <= rounds * receivers / 4
    last = sum(packet[4] == NAK for packet in network.upstream[-naks // rounds :])
    assert last <= 25


def test_no_more_requests_a_second_than_the_cap() -> None:
    options = ReceiverOptions(max_naks=50)
    network = Network(receiver=options, drop=lambda packet: packet[4] == ODATA and packet[19] % 2 == 0)
    for number in range(2000):
        network.send([b"%d" % number])
        network.run(0.001)
        if number % 200 == 199:
            network.run(0.0)
    assert sum(packet[4] == NAK for packet in network.upstream) <= 50 * 2 + 5
    network.run(5)
    assert network.listeners[0].units == _bodies(2000)


def test_the_rate_is_kept_and_repairs_have_their_share() -> None:
    rate = 100_000
    options = SourceOptions(rate=rate, repair_share=0.5)
    network = Network(source=options, weather=Weather(loss=0.3), seed=5)
    network.send([b"x" * 976] * 1000)  # ten seconds' worth
    start, before = network.now, network.source.statistics.bytes_out
    network.run(5)
    sent = network.source.statistics.bytes_out - before
    assert sent <= rate * (network.now - start) + 64 * 1024 + 1472
    assert (
        network.source.statistics.repairs > 0.2 * sent / 1000
    )  # 30 % are lost; none of them waits for the end
    network.run_until(lambda: len(network.listeners[0].units) == 1000, 60)


def test_repairs_leave_room_for_new_data() -> None:
    """Whoever asks for everything again and again does not stop the flow."""
    options = SourceOptions(rate=100_000, repair_share=0.5, repeat_guard=1e-6)
    source = Source(options, TSI, PORT, PATH, GROUP)
    source.send([b"x" * 976] * 2000)
    now, out = 100.0, {ODATA: 0, RDATA: 0}
    for _ in range(1000):
        everything = (
            tuple(range(max(source.lead - 60, 0), source.lead + 1)) if source.lead < 1 << 31 else (0,)
        )
        nak = Request(kind=NAK, tsi=TSI, port=PORT, numbers=everything[:63], source=PATH, group=GROUP)
        source.receive(packets.encode(nak), now)
        for packet in source.packets_to_send(now):
            out[packet[4]] = out.get(packet[4], 0) + len(packet)
        now += 0.01
    assert out[ODATA] > 0.3 * 100_000 * 10
    assert out[RDATA] > 0.2 * 100_000 * 10


def test_what_left_the_source_s_window_is_told_to_be_lost() -> None:
    options = SourceOptions(window_packets=20)
    network = Network(source=options, drop=lambda packet: packet[4] == ODATA and 5 <= packet[19] < 8)
    network.listeners[0].receiver._naks.tokens = -1e9  # it cannot ask
    network.send(_bodies(100))
    network.run(1)
    listener = network.listeners[0]
    assert listener.units == [*_bodies(5), None, *_bodies(100)[8:]]
    told = listener.told(What.LOST)
    assert (told[0].first, told[-1].last) == (5, 7)
    assert listener.receiver.statistics.lost == 3


def test_what_nobody_has_is_given_up_alone() -> None:
    """The source confirms and never repairs one packet; the others are delivered around the hole."""
    network = Network(
        receiver=ReceiverOptions(data_tries=3, ncf_tries=3, repeat=0.05),
        drop=lambda packet: packet[4] in (ODATA, RDATA) and packet[16:20] == b"\0\0\0\x03",
    )
    network.send(_bodies(6))
    network.run(20)
    assert network.listeners[0].units == [b"0", b"1", b"2", None, b"4", b"5"]
    assert [(event.first, event.detail) for event in network.listeners[0].told(What.LOST)] == [
        (3, "no repair after the last request")
    ]


def test_a_receiver_that_dies_slows_nobody() -> None:
    network = Network(receivers=3, weather=STORM)
    network.run(0.3)
    network.send(_bodies(50))
    network.run(0.01)
    network.listeners[0].alive = False
    network.send([b"%d" % number for number in range(50, 100)])
    network.run_until(lambda: all(len(listener.units) == 100 for listener in network.listeners[1:]), 30)


# ---------------------------------------------------------------------- coming and going


def test_who_comes_late_begins_with_what_comes_next() -> None:
    network = Network()
    network.send(_bodies(10))
    network.run(0.1)
    late = network.join()
    network.run(0.1)
    network.send([b"next"])
    network.run(0.1)
    assert late.units == [b"next"]
    assert [event.first for event in late.told(What.LATE_JOIN)] == [10]


def test_who_comes_late_may_have_the_whole_window() -> None:
    network = Network(source=SourceOptions(window_packets=8))
    network.send(_bodies(10))
    network.run(0.1)
    late = network.join(options=ReceiverOptions(join="window"))
    network.send([b"10"])
    network.run(1)
    assert late.units == _bodies(11)[3:]
    assert late.told(What.LOST) == []


@pytest.mark.parametrize("wanted, first", [(5, 5), (1, 3), (1000, 11)])
def test_who_comes_late_may_begin_at_a_number_or_what_is_nearest(wanted: int, first: int) -> None:
    network = Network(source=SourceOptions(window_packets=8))
    network.send(_bodies(10))
    network.run(0.1)
    late = network.join(options=ReceiverOptions(join=wanted))
    network.send([b"10"])
    network.run(0.5)
    network.send([b"11"])
    network.run(0.5)
    assert late.units[0] in (b"%d" % first, b"10")
    assert late.units == _bodies(12)[int(late.units[0]) :]


def test_without_permission_a_late_comer_begins_with_what_comes_next() -> None:
    network = Network(source=SourceOptions(late_join=False))
    network.send(_bodies(10))
    network.run(0.1)
    late = network.join(options=ReceiverOptions(join="window"))
    network.send([b"10"])
    network.run(1)
    assert late.units == [b"10"]


def test_a_receiver_that_has_heard_no_spm_asks_for_one() -> None:
    network = Network(
        receivers=0, source=SourceOptions(ambient=3600, heartbeat_first=1800, heartbeat_max=3600)
    )
    network.run(0.1)  # the first SPM is gone
    late = network.join()
    network.drop = lambda packet: packet[4] == ODATA and packet[19] == 1
    network.send(_bodies(3))
    network.run(2)
    assert late.units == _bodies(3)
    assert [packet[4] for packet in network.upstream][:1] == [packets.SPMR]


def test_a_storm_of_requests_gets_one_spm_at_once_and_then_one_per_shortest_heartbeat() -> None:
    options = SourceOptions(ambient=3600, heartbeat_first=5.0, heartbeat_max=3600)
    source = Source(options, TSI, PORT, PATH, GROUP)
    request = packets.encode(packets.Packet(kind=packets.SPMR, tsi=TSI, port=PORT))
    assert len(source.packets_to_send(100.0)) == 1
    heartbeats = source.next_deadline()
    assert heartbeats == 105.0
    sent = []
    now = 100.5
    while now < heartbeats:
        source.receive(request, now)
        sent += [now] * len(source.packets_to_send(now))
        now += 0.125
    # The first is answered immediately (RFC 3208, 13.4), the others together after IHB_MIN.
    assert sent == [100.5]
    assert source.next_deadline() == 105.0
    assert len(source.packets_to_send(105.0)) == 1  # the heartbeat
    source.receive(request, 105.25)
    assert source.next_deadline() == 110.0
    assert source.packets_to_send(109.875) == []
    assert len(source.packets_to_send(110.0)) == 1


def test_the_end_of_a_source_is_told_and_what_was_missed_still_comes() -> None:
    network = Network(drop=lambda packet: packet[4] == ODATA and packet[19] == 9)
    network.send(_bodies(10))
    network.run(0.001)
    for packet in network.source.close():
        network.multicast(packet)
    network.run(0.5)
    listener = network.listeners[0]
    assert listener.units == _bodies(10)
    assert len(listener.told(What.FINISHED)) == 1
    network.source_alive = False
    network.run(60)
    assert [event.what for event in listener.events][-1] is What.GONE
    assert listener.receiver.sessions == {}


def test_a_source_that_gives_up_is_told_and_nobody_goes_on_asking() -> None:
    network = Network(drop=lambda packet: packet[4] == ODATA and packet[19] == 2)
    network.send(_bodies(5))
    network.run(0.0005)
    for packet in network.source.close(Reset(code=7, unanswered=True)):
        network.multicast(packet)
    network.source_alive = False
    network.run(5)
    listener = network.listeners[0]
    assert listener.told(What.RESET)[0].detail.endswith("code 7")
    assert listener.units == [b"0", b"1", None, b"3", b"4"]
    assert network.upstream == []


def test_a_source_that_falls_silent_is_gone() -> None:
    network = Network(receiver=ReceiverOptions(source_expiry=30))
    network.run(1)
    network.source_alive = False
    network.run(100)
    assert [event.what for event in network.listeners[0].events] == [What.APPEARED, What.GONE]


@pytest.mark.parametrize("missed", [3, 10])
def test_the_tail_of_a_source_that_is_killed_is_told_to_be_lost(missed: int) -> None:
    network = Network()
    network.run(1)
    network.send(_bodies(20))
    network.drop = lambda packet: packet[4] == ODATA and packet[19] >= 20 - missed
    network.run(0.01)
    network.source_alive = False
    network.run(9)
    listener = network.listeners[0]
    assert listener.told(What.LOST) == []
    network.run(400)
    assert listener.units == _bodies(20 - missed)
    # How many there were is not known.
    assert [(event.first, event.last) for event in listener.told(What.LOST)] == [(20 - missed, None)]
    assert listener.events[-1].what is What.GONE


def test_a_source_that_is_idle_or_was_killed_after_its_heartbeat_has_lost_nothing() -> None:
    network = Network()
    network.send(_bodies(20))
    network.run(1000)
    network.source_alive = False
    network.run(1000)
    assert network.listeners[0].told(What.LOST) == []


def test_of_a_network_that_was_cut_no_more_is_told_than_of_a_killed_source_and_the_rest_is_repaired() -> None:
    network = Network(source=SourceOptions(window_seconds=60))
    network.run(1)
    network.send(_bodies(10))
    network.run(0.01)
    network.drop = lambda packet: True
    network.send(_bodies(20)[10:])
    network.run(30)
    network.drop = lambda packet: False
    network.run(60)
    listener = network.listeners[0]
    assert listener.units == _bodies(20)
    assert len(listener.told(What.LOST)) == 1


def test_a_source_that_is_killed_and_started_again_is_noticed() -> None:
    network = Network()
    network.send([b"before"])
    network.run(0.1)
    network.source = Source(SourceOptions(), TSI[:6] + b"\x12\x35", PORT, PATH, GROUP)
    network.send([b"after"])
    network.run(0.1)
    listener = network.listeners[0]
    assert listener.units == [b"before", b"after"]
    assert "started again?" in listener.told(What.APPEARED)[1].detail


def test_a_source_that_begins_anew_under_its_old_name_is_a_reset() -> None:
    network = Network(receiver=ReceiverOptions(window_packets=100), first=5000)
    network.run(0.1)
    network.send([b"before"])
    network.run(10)
    network.source = Source(SourceOptions(), TSI, PORT, PATH, GROUP, first=10)
    network.run(0.1)
    network.send([b"after"])
    network.run(0.1)
    listener = network.listeners[0]
    assert listener.units == [b"before", None, b"after"]
    assert len(listener.told(What.RESET)) == 1


def test_what_a_source_sent_before_it_began_anew_is_delivered_and_what_is_missing_of_it_is_told() -> None:
    network = Network(receiver=ReceiverOptions(window_packets=100), first=5000)
    network.run(10)
    old = network.source
    old.send([b"here", b"missing", b"behind"])
    here, _, behind = old.packets_to_send(network.now)
    new = Source(SourceOptions(), TSI, PORT, PATH, GROUP, first=10)
    batch = [here, behind, *new.packets_to_send(network.now)]
    new.send([b"after"])
    batch += new.packets_to_send(network.now)
    listener = network.listeners[0]
    listener.receiver.receive(batch, network.now, "source")  # all of it in one system call
    network.source = new
    network.run(0.1)
    assert listener.units == [b"here", None, b"behind", None, b"after"]
    assert [(event.first, event.last) for event in listener.told(What.LOST)] == [(5001, 5001)]
    assert listener.told(What.RESET)


def test_a_source_that_gave_up_and_begins_anew_under_its_old_name_is_asked_for_repairs_again() -> None:
    network = Network(receiver=ReceiverOptions(window_packets=100), first=5000)
    network.run(10)
    for packet in network.source.close(Reset(1, unanswered=True)):
        network.multicast(packet)
    network.run(0.1)
    network.source = Source(SourceOptions(), TSI, PORT, PATH, GROUP, first=10)
    network.run(0.1)
    lost: list[bytes] = []

    def drop(packet: bytes) -> bool:
        if b"second" not in packet or lost:
            return False
        lost.append(packet)
        return True

    network.drop = drop
    network.send([b"first", b"second", b"third"])
    network.run(1)
    listener = network.listeners[0]
    assert lost
    assert listener.units == [None, b"first", b"second", b"third"]
    assert not listener.receiver.sessions[TSI].finished


def test_two_sources_with_the_same_identifier_are_told_once() -> None:
    network = Network()
    network.send([b"ours"])
    network.run(0.1)
    listener = network.listeners[0]
    other = Source(SourceOptions(), TSI, PORT, PATH, GROUP, first=7000)
    other.send([b"theirs"] * 3)
    listener.receiver.receive(other.packets_to_send(network.now), network.now, "elsewhere")
    network.run(0.1)
    assert listener.units == [b"ours"]
    assert [event.detail for event in listener.told(What.DUPLICATE)] == [
        "source and elsewhere use the same one"
    ]


def data_of(tsi: bytes) -> bytes:
    return packets.encode(Data(kind=ODATA, tsi=tsi, port=PORT, number=1, trail=0, data=b"x"))


def test_addresses_are_forged_without_end_and_some_are_remembered() -> None:
    receiver = Receiver(ReceiverOptions(), PORT, GROUP, 1)
    for number in range(1000):
        receiver.receive([data_of(TSI)], 1.0, f"address {number}")
    told = [event.detail for event in receiver.events if event.what is What.DUPLICATE]
    assert len(told) == len(receiver.sessions[TSI].impostors) == MAX_IMPOSTORS
    assert told[0] == "address 0 and address 1 use the same one"
    assert told[-1] == "address 0 and address 16 use the same one; no further address is reported"
    assert receiver.statistics.ignored == 999


def test_of_very_many_sources_at_an_address_the_latest_are_named() -> None:
    receiver = Receiver(ReceiverOptions(), PORT, GROUP, 1)
    for number in range(1000):
        receiver.receive([data_of(number.to_bytes(8, "big"))], 1.0, "here")
    details = [event.detail for event in receiver.events if event.what is What.APPEARED]
    assert len(details) == 1000
    assert max(map(len, details)) < 200
    assert details[2] == f"from here, like {tsi(0)}, {tsi(1)}: started again?"
    assert details[-1] == f"from here, like {tsi(996)}, {tsi(997)}, {tsi(998)} and 996 others: started again?"


def tsi(number: int) -> str:
    return packets.tsi_text(number.to_bytes(8, "big"))


# ---------------------------------------------------------------------- units and windows


def test_units_that_are_larger_than_a_packet_are_put_together() -> None:
    network = Network(seed=3, weather=STORM, packet_size=200)
    network.run(0.3)
    units = [bytes([number]) * size for number, size in enumerate((10, 1000, 176, 177, 5000, 0, 300))]
    network.send(units)
    network.run_until(lambda: len(network.listeners[0].units) == len(units), 30)
    assert network.listeners[0].units == units


def test_a_unit_with_a_hole_is_dropped_and_counted() -> None:
    network = Network(
        source=SourceOptions(window_packets=4),
        packet_size=100,
        drop=lambda packet: packet[4] in (ODATA, RDATA) and packet[19] == 2,
    )
    network.send([b"a" * 200, *[b"b"] * 8])  # packets 0 to 3, and on
    network.run(1)
    listener = network.listeners[0]
    assert listener.units == [None, *[b"b"] * 8]
    assert listener.receiver.statistics.dropped_units == 1


def test_a_receiver_holds_no_more_bytes_than_it_may() -> None:
    network = Network(
        receiver=ReceiverOptions(window_bytes=10_000, back_off=60),
        drop=lambda packet: packet[4] == ODATA and packet[19] == 1,
    )
    network.send([b"x" * 1000] * 20)
    network.run(0.5)
    listener = network.listeners[0]
    assert listener.units == [b"x" * 1000, None, *[b"x" * 1000] * 18]
    assert [event.detail for event in listener.told(What.LOST)] == ["the receive window is full"]


def test_the_leading_spm_is_golden() -> None:
    """An empty window is 0 to -1, as OpenPGM has it."""
    source = Source(SourceOptions(late_join=False), TSI, PORT, PATH, GROUP)
    spm = packets.decode(source.packets_to_send(1.0)[0])
    assert isinstance(spm, SourcePath)
    assert (spm.kind, spm.number, spm.trail, spm.lead, spm.path) == (SPM, 0, 0, 0xFFFFFFFF, PATH)


def test_confirmations_repeat_the_request() -> None:
    source = Source(SourceOptions(), TSI, PORT, PATH, GROUP)
    source.send(_bodies(9))
    source.packets_to_send(1.0)
    nak = Request(kind=NAK, tsi=TSI, port=PORT, numbers=(3, 5, 6), source=PATH, group=GROUP)
    source.receive(packets.encode(nak), 1.1)
    out = [packets.decode(packet) for packet in source.packets_to_send(1.1)]
    assert [(packet.kind, getattr(packet, "numbers", None)) for packet in out if packet.kind == NCF] == [
        (NCF, (3, 5, 6))
    ]
    assert [packet.number for packet in out if packet.kind == RDATA] == [3, 5, 6]
