"""Long gaps: a forged packet may jump over a whole window, and so may the next one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plugins.protocols.pgm import packets
from plugins.protocols.pgm.chance import Chance
from plugins.protocols.pgm.events import What
from plugins.protocols.pgm.options import ReceiverOptions
from plugins.protocols.pgm.packets import NAK, ODATA, SPM, Data, Request, SourcePath
from plugins.protocols.pgm.receive_window import ReceiveWindow
from plugins.protocols.pgm.receiver import Receiver
from plugins.protocols.pgm.recovery import MAX_TAKEN, Recovery
from plugins.protocols.pgm.sequence import after, distance, span
from tests.plugins.protocols.pgm.network import GROUP, PATH, PORT, TSI
from tests.steps import steps


def data(number: int) -> bytes:
    return packets.encode(
        Data(kind=ODATA, tsi=TSI, port=PORT, number=number & 0xFFFF_FFFF, trail=0, data=b"x")
    )


def spm(number: int, lead: int) -> bytes:
    return packets.encode(
        SourcePath(kind=SPM, tsi=TSI, port=PORT, number=number, trail=0, lead=lead, path=PATH)
    )


def listening(*, with_path: bool) -> Receiver:
    receiver = Receiver(ReceiverOptions(), PORT, GROUP, 1)
    receiver.receive([spm(1, 0)] if with_path else [], 1.0)
    receiver.receive([data(1)], 1.0)
    return receiver


def cost_of_jumps(jump: int, *, with_path: bool) -> int:
    receiver = listening(with_path=with_path)

    def turns() -> None:
        for turn in range(1, 21):
            now = 1.0 + 0.001 * turn
            receiver.receive([data(1 + jump * turn)], now)
            receiver.packets_to_send(now)
            receiver.next_deadline()
            receiver.take()

    counted = steps(turns)
    assert len([event for event in receiver.events if event.what is What.GAP]) == 20
    return counted


def test_a_jump_over_the_window_costs_what_a_short_one_does() -> None:
    for with_path in (True, False):
        few = cost_of_jumps(2, with_path=with_path)
        for jump in (60_000, 65_536, 1 << 20):
            assert cost_of_jumps(jump, with_path=with_path) < 5 * few


def test_a_leading_edge_far_ahead_costs_what_a_near_one_does() -> None:
    def cost(lead: int) -> int:
        receiver = listening(with_path=True)
        return steps(lambda: receiver.receive([spm(2, lead)], 1.0))

    assert cost(65_000) < 3 * cost(3)


def test_a_long_gap_is_requested_in_turns_from_the_oldest_on() -> None:
    receiver = listening(with_path=True)
    receiver.receive([data(60_000)], 1.0)
    asked: list[int] = []
    now = 1.0
    while len(asked) < 59_998:
        now += 0.001
        before = len(asked)
        for _, packet in receiver.packets_to_send(now):
            request = packets.decode(packet)
            assert isinstance(request, Request)
            assert request.kind == NAK
            asked += request.numbers
        assert len(asked) - before <= MAX_TAKEN + 62
        receiver.receive([data(number) for number in asked[before:]], now)
    assert asked == list(range(2, 60_000))
    assert sum(len(units) for _, units in receiver.take()) == 60_000
    assert receiver.statistics.lost == 0


def test_without_an_address_to_ask_a_long_gap_waits_as_one() -> None:
    receiver = listening(with_path=False)
    receiver.receive([data(60_000)], 1.0)

    def wait() -> None:
        for turn in range(1000):
            receiver.handle_timeout(1.0 + 0.01 * turn)
            receiver.next_deadline()

    assert steps(wait) < 2_000_000
    receiver.receive([spm(1, 60_000)], 11.0)
    now, asked = 11.0, 0
    while asked < 59_998:
        now += 0.01
        asked += sum(
            len(request.numbers)
            for _, packet in receiver.packets_to_send(now)
            if isinstance(request := packets.decode(packet), Request)
        )
    assert now < 30.0


@given(
    st.sampled_from((0, 0x7FFF_FF80, 0xFFFF_FF80)),
    st.lists(
        st.tuples(
            st.sampled_from(
                ("found", "arrived", "confirmed", "asked by another", "forget", "due", "postpone")
            ),
            st.integers(0, 400),
        ),
        max_size=40,
    ),
)
def test_ranges_are_no_different_from_their_packets(first: int, course: list[tuple[str, int]]) -> None:
    recovery = Recovery(ReceiverOptions(), Chance(1))
    missing: set[int] = set()
    lead, oldest, now = 0, 0, 0.0
    for what, at in course:
        now += 0.005
        number = after(first, at)
        if what == "found":
            recovery.found(after(first, lead), after(first, lead + at), now)
            missing |= set(range(lead, lead + at + 1))
            lead += at + 2
        elif what == "arrived" and at in missing:
            recovery.arrived(number, now, repaired=True)
            missing.discard(at)
        elif what == "confirmed":
            recovery.confirmed([number, after(number, 7)], now)
        elif what == "asked by another":
            recovery.asked_by_another([number, after(number, 1)], now)
        elif what == "forget" and oldest <= at < lead:
            recovery.forget(after(first, oldest), number)
            oldest = at + 1
            missing = {each for each in missing if each > at}
        elif what == "postpone":
            recovery.postpone_ranges(now, now + 0.05)
        elif what == "due":
            ask, given_up = recovery.take_due(now, at + 1)
            assert not given_up
            assert {distance(first, each) for each in ask} <= missing
            assert len(set(ask)) == len(ask)
            recovery.asked(ask, now)
        assert {each for each in range(lead + 3) if after(first, each) in recovery} == missing
        assert (recovery.next_deadline() is not None) == bool(missing)


def test_few_large_packets_behind_a_long_gap_are_found_without_a_walk_over_it() -> None:
    def cost(gap: int) -> int:
        window = ReceiveWindow(0, 1 << 16, 300)
        for number in range(3):
            window.put(gap + number, "x", 100)
        return steps(lambda: window.put(gap + 3, "x", 100))

    assert cost(60_000) < 2 * cost(10)


def test_what_the_window_gives_up_at_once_is_not_requested() -> None:
    window = ReceiveWindow(0, 10, 1000)
    window.put(100, "x", 1)
    assert [span(*each) for each in window.found] == [list(range(91, 100))]
    assert window.lost == [(0, 90)]
