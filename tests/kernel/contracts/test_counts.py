"""Counts for people."""

from __future__ import annotations

from kernel.contracts.counts import counted
from tests.notes import for_each


@for_each(
    "count, nouns, shown",
    [
        (0, ("message",), "0 messages"),
        (1, ("message",), "1 message"),
        (2000, ("message",), "2,000 messages"),
        (1, ("packet was", "packets were"), "1 packet was"),
        (2, ("packet was", "packets were"), "2 packets were"),
    ],
)
def test_a_count_has_the_singular_for_one_and_the_plural_for_all_others(
    count: int, nouns: tuple[str, ...], shown: str
) -> None:
    assert counted(count, *nouns) == shown
