"""What a publisher is told: as few words as possible, and never too early."""

from __future__ import annotations

from plugins.engines.broker.host.confirms import Confirms, Outcome


def test_one_word_for_all() -> None:
    confirms = Confirms()
    confirms.add(1000, 1000, 0)
    confirms.add(500, 500, 0)
    assert confirms.outcomes(0) == [Outcome(1500, accepted=True, single=False)]
    assert confirms.outcomes(0) == []


def test_what_was_refused_is_told_apart() -> None:
    confirms = Confirms()
    confirms.add(3, 1, 0)
    confirms.add(2, 2, 0)
    assert confirms.outcomes(0) == [
        Outcome(1, accepted=True, single=True),
        Outcome(3, accepted=False, single=False),
        Outcome(5, accepted=True, single=False),
    ]


def test_what_routes_have_not_confirmed_waits() -> None:
    confirms = Confirms()
    confirms.add(10, 10, 10)
    confirms.add(10, 10, 20)
    confirms.add(5, 5, 0)
    assert confirms.outcomes(0) == []
    assert confirms.outcomes(9) == [Outcome(9, accepted=True, single=False)]
    assert confirms.outcomes(10) == [Outcome(10, accepted=True, single=True)]
    assert confirms.outcomes(20) == [Outcome(25, accepted=True, single=False)]


def test_what_others_sent_over_the_routes_does_not_count() -> None:
    confirms = Confirms()
    confirms.add(2, 2, 102)
    assert confirms.outcomes(100) == []
    assert confirms.outcomes(101) == [Outcome(1, accepted=True, single=True)]
    confirms.add(1, 1, 0)
    assert confirms.outcomes(101) == []
    assert confirms.outcomes(102) == [Outcome(3, accepted=True, single=False)]


def test_what_was_refused_is_not_accepted_because_routes_have_confirmed_a_part_of_its_batch() -> None:
    confirms = Confirms()
    confirms.add(10, 4, 10)
    assert confirms.outcomes(7) == [
        Outcome(4, accepted=True, single=False),
        Outcome(7, accepted=False, single=False),
    ]
    assert confirms.outcomes(10) == [Outcome(10, accepted=False, single=False)]
    confirms.add(1, 1, 0)
    assert confirms.outcomes(10) == [Outcome(11, accepted=True, single=True)]
