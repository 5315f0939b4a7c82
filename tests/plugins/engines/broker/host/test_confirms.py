"""What a publisher is told: as few words as possible, and never too early."""

from __future__ import annotations

from plugins.engines.broker.host.confirms import Confirms, Verdict


def test_one_word_for_all() -> None:
    confirms = Confirms()
    confirms.add(1000, 1000, 0)
    confirms.add(500, 500, 0)
    assert confirms.verdicts(0) == [Verdict(1500, accepted=True, single=False)]
    assert confirms.verdicts(0) == []


def test_what_was_refused_is_told_apart() -> None:
    confirms = Confirms()
    confirms.add(3, 1, 0)
    confirms.add(2, 2, 0)
    assert confirms.verdicts(0) == [
        Verdict(1, accepted=True, single=True),
        Verdict(3, accepted=False, single=False),
        Verdict(5, accepted=True, single=False),
    ]


def test_what_routes_have_not_confirmed_waits() -> None:
    confirms = Confirms()
    confirms.add(10, 10, 10)
    confirms.add(10, 10, 20)
    confirms.add(5, 5, 0)
    assert confirms.verdicts(0) == []
    assert confirms.verdicts(9) == [Verdict(9, accepted=True, single=False)]
    assert confirms.verdicts(10) == [Verdict(10, accepted=True, single=True)]
    assert confirms.verdicts(20) == [Verdict(25, accepted=True, single=False)]


def test_what_others_sent_over_the_routes_does_not_count() -> None:
    confirms = Confirms()
    confirms.add(2, 2, 102)
    assert confirms.verdicts(100) == []
    assert confirms.verdicts(101) == [Verdict(1, accepted=True, single=True)]
    confirms.add(1, 1, 0)
    assert confirms.verdicts(101) == []
    assert confirms.verdicts(102) == [Verdict(3, accepted=True, single=False)]


def test_what_was_refused_is_not_accepted_because_routes_have_confirmed_a_part_of_its_batch() -> None:
    confirms = Confirms()
    confirms.add(10, 4, 10)
    assert confirms.verdicts(7) == [
        Verdict(4, accepted=True, single=False),
        Verdict(7, accepted=False, single=False),
    ]
    assert confirms.verdicts(10) == [Verdict(10, accepted=False, single=False)]
    confirms.add(1, 1, 0)
    assert confirms.verdicts(10) == [Verdict(11, accepted=True, single=True)]
