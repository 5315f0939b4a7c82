"""Durations as people read them."""

from __future__ import annotations

from kernel.contracts.durations import in_seconds


def test_what_is_left_of_a_timeout_has_three_digits() -> None:
    shown = {
        0: "0 s",
        0.1999117870018381: "0.2 s",
        0.0123456: "0.0123 s",
        1.0: "1 s",
        59.9967: "60 s",
        999.4: "999 s",
        999.7: "1000 s",
        86400.0: "86400 s",
    }
    assert {seconds: in_seconds(seconds) for seconds in shown} == shown
