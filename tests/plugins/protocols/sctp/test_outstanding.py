"""What is sent and not acknowledged: losses that SACKs tell, and ranges of TSNs against sets of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plugins.protocols.sctp.bundle import Bundle
from plugins.protocols.sctp.chunks import Sack
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.outstanding import MISSING_REPORTS, Outstanding, Range, without
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.schedule import Outgoing, Terms

numbers = st.sets(st.integers(0, 40))


def ranges_of(members: set[int]) -> list[Range]:
    starts = sorted(member for member in members if member - 1 not in members)
    ends = sorted(member for member in members if member + 1 not in members)
    return list(zip(starts, ends, strict=True))


@given(numbers, numbers)
def test_what_is_left_is_the_difference_of_the_sets(some: set[int], others: set[int]) -> None:
    assert without(ranges_of(some), ranges_of(others)) == ranges_of(some - others)


FIRST = 1000
SIZE = 1000


def sent(outstanding: Outstanding, path: Path, count: int, now: float) -> None:
    """Send so many packets of one message each."""
    for _ in range(count):
        tsn = outstanding.next_tsn
        message = Outgoing(0, bytes(SIZE), 0, Terms())
        message.fragments = message.fragments_sent = 1
        outstanding.add(Bundle(tsn, tsn, [b"", message.data], [message], path, SIZE, SIZE), now)


def test_after_a_time_out_only_what_was_sent_later_tells_that_a_retransmission_is_lost() -> None:
    path = Path(b"1234", SctpOptions(), confirmed=True)
    outstanding = Outstanding(FIRST, [path])
    sent(outstanding, path, 40, 0.0)
    path.cwnd = 40 * SIZE
    path.timed_out()
    outstanding.mark_path_lost(path, path, 1.0)
    lost = outstanding.bundles.find(FIRST)
    assert lost is not None
    outstanding.repeat(lost, 1.0)
    # Acknowledgements of the window before the timeout, which were late.
    for end in range(2, 30):
        outstanding.on_sack(Sack(cumulative=FIRST - 1, window=1 << 20, gaps=((2, end),)), 1.1)
    assert lost.in_flight
    assert path.recovery_exit is None
    # The threshold stays half of the window before the timeout (RFC 9260, 7.2.3).
    assert path.ssthresh == 20 * SIZE
    # What was sent after the retransmission arrives, and that does not.
    sent(outstanding, path, MISSING_REPORTS, 1.2)
    for end in range(MISSING_REPORTS):
        assert lost.in_flight
        outstanding.on_sack(Sack(cumulative=FIRST - 1, window=1 << 20, gaps=((2, 41 + end),)), 1.3)
    assert lost.awaits_retransmission()
    assert path.recovery_exit is not None


def test_retransmissions_that_are_lost_are_retransmitted_and_halve_the_window_once_more() -> None:
    path = Path(b"1234", SctpOptions(), confirmed=True)
    outstanding = Outstanding(FIRST, [path])
    path.cwnd = 100 * SIZE
    sent(outstanding, path, 20, 0.0)

    def sack(*gaps: tuple[int, int]) -> None:
        outstanding.on_sack(Sack(cumulative=FIRST - 1, window=1 << 20, gaps=gaps), 0.1)

    def lost() -> set[int]:
        return {bundle.first - FIRST for bundle in outstanding.bundles if bundle.awaits_retransmission()}

    # The first packet and the third are lost.
    for end in range(4, 4 + MISSING_REPORTS):
        sack((2, 2), (4, end))
    assert lost() == {0, 2}
    assert path.cwnd == 50 * SIZE
    for at in (0, 2):
        bundle = outstanding.bundles.find(FIRST + at)
        assert bundle is not None
        outstanding.repeat(bundle, 0.2)
    # The rest of the window says nothing about the retransmissions.
    for end in range(4 + MISSING_REPORTS, 21):
        sack((2, 2), (4, end))
    assert not lost()
    # Packets that were sent after them do.
    sent(outstanding, path, MISSING_REPORTS, 0.3)
    for end in range(21, 20 + MISSING_REPORTS):
        sack((2, 2), (4, end))
        assert not lost()
    sack((2, 2), (4, 20 + MISSING_REPORTS))
    assert lost() == {0, 2}
    # Once for both: they were lost in one round trip.
    assert path.cwnd == 25 * SIZE
