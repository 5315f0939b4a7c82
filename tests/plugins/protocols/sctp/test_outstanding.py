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
