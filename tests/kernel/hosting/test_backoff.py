"""How attempts are spaced."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.hosting.backoff import Backoff, BackoffOptions


def test_waits_double_up_to_the_cap() -> None:
    backoff = Backoff(BackoffOptions(first=1, most=10, jitter=0))
    assert [backoff.next_wait() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    assert backoff.attempts == 6


def test_success_begins_anew() -> None:
    backoff = Backoff(BackoffOptions(first=1, most=10, jitter=0))
    backoff.next_wait()
    backoff.next_wait()
    backoff.succeeded()
    assert backoff.next_wait() == 1


@given(
    st.floats(0.001, 100), st.floats(0.001, 1000), st.floats(0, 1), st.integers(0, 2**32), st.integers(1, 200)
)
def test_waits_stay_within_their_bounds(
    first: float, most: float, jitter: float, seed: int, attempts: int
) -> None:
    backoff = Backoff(BackoffOptions(first=first, most=most, jitter=jitter), seed)
    for attempt in range(attempts):
        wait = backoff.next_wait()
        full = min(first * 2 ** min(attempt, 62), most)
        assert full * (1 - jitter) <= wait <= full


def test_jitter_keeps_peers_apart_and_a_seed_makes_it_repeatable() -> None:
    options = BackoffOptions()
    waits = [Backoff(options, seed).next_wait() for seed in (1, 2, 3, 1)]
    assert len(set(waits)) == 3
    assert waits[0] == waits[3]


def test_attempts_without_end_do_not_overflow() -> None:
    backoff = Backoff(BackoffOptions(jitter=0))
    backoff.attempts = 10**6
    assert backoff.next_wait() == 30.0


@pytest.mark.parametrize("bad", [{"first": 0}, {"most": -1}, {"jitter": 1.5}, {"forst": 1}])
def test_impossible_options_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(bad, BackoffOptions)
