"""When what is due, on a clock that moves as a test says; which rows are wanted; runs as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.engines.journal.moments import moment_of
from plugins.engines.journal.replay_reader import ReplayReader
from plugins.engines.journal.replay_schedule import ReplaySchedule
from plugins.engines.journal.selection import EVERYTHING, Selection
from plugins.engines.journal.writer import JournalWriter
from plugins.protocols.journal_format.envelopes import Source
from tests.plugins.engines.journal.conftest import Clock

SECOND = 1_000_000


def playback(speed: float) -> ReplaySchedule:
    """One message at each of 0, 1, 1.5 and 10 seconds, recorded long ago."""
    made = ReplaySchedule(speed)
    made.add(
        [(500 * SECOND + at, batch_of([b"%d" % at])) for at in (0, SECOND, 1_500_000, 10 * SECOND)], end=4
    )
    return made


def played(made: ReplaySchedule, start: float) -> list[tuple[float, bytes]]:
    """Look only when something is due, as the engine's timer does."""
    now, found = start, []
    while (due := made.next_due(now)) is not None:
        now = max(now, due)
        found += [(now - start, body) for batch in made.due(now, 1000) for body in batch.bodies]
    return found


@pytest.mark.parametrize(
    "speed, times",
    [(1.0, [0, 1, 1.5, 10]), (2.0, [0, 0.5, 0.75, 5]), (0.1, [0, 10, 15, 100]), (0.0, [0, 0, 0, 0])],
)
def test_messages_are_as_far_apart_as_they_were(speed: float, times: list[float]) -> None:
    found = played(playback(speed), 77.0)
    assert [at for at, _ in found] == pytest.approx(times)
    assert [body for _, body in found] == [b"0", b"1000000", b"1500000", b"10000000"]


def test_nothing_is_early_and_what_is_late_comes_at_once() -> None:
    made = playback(1.0)
    assert len(made.due(100.0, 10)) == 1
    assert made.due(100.999, 10) == []
    assert [batch.bodies for batch in made.due(103.0, 10)] == [[b"1000000"], [b"1500000"]]
    assert made.next_due(103.0) == 110.0


def test_no_more_than_asked_for() -> None:
    made = ReplaySchedule(0)
    made.add([(1, batch_of([b"a", b"b"])), (1, batch_of([b"c"])), (1, batch_of([b"d"]))], end=4)
    assert [batch.bodies for batch in made.due(0, 3)] == [[b"a", b"b"], [b"c"]]
    assert (made.sent, made.waiting) == (3, 1)


def test_the_position_is_that_of_whole_batches_that_are_done() -> None:
    made = ReplaySchedule(0)
    made.add([(1, batch_of([b"a", b"b"]))], end=10)
    made.add([], end=20)  # nothing in it was wanted
    made.add([(1, batch_of([b"c"]))], end=30)
    assert made.position(0) is None
    assert made.position(1) is None
    assert made.position(2) == 20
    assert made.position(2) is None
    assert made.position(3) == 30


@pytest.mark.parametrize(
    "match, wanted",
    [
        ((), ["", "a.b", "z"]),
        (("a.*", "nothing"), ["a.b"]),
        (("prefix:",), ["", "a.b", "z"]),
        (("*",), ["", "z"]),
    ],
)
def test_patterns_mean_what_they_mean_to_a_route(match: tuple[str, ...], wanted: list[str]) -> None:
    selection = Selection(match=match)
    assert [key for key in ("", "a.b", "z") if selection.fits(key)] == wanted


def test_a_pattern_of_many_hashes_is_answered_at_once() -> None:
    selection = Selection(match=(".".join(["#", "a"] * 20),))
    assert not selection.fits(".".join(["a"] * 40 + ["b"]))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two runs and a multi-part one from two engines, a second apart."""
    clock = Clock()
    with JournalWriter(tmp_path, clock=clock) as writer:
        for key, engine, batch in (
            ("weather.madrid", "north", batch_of([b"a", b"b"])),
            ("news", "south/1", batch_of([b"c"])),
            ("weather.wien", "south/2", batch_of([(b"d", b"e"), (b"", b"f")], multipart=True)),
        ):
            envelope = Envelope(
                key=key, exchange="feed" if key == "news" else "", properties={"headers": {"k": key}}
            )
            made = Batch(batch.bodies, batch.size, envelope, batch.multipart)
            writer.append([(made, writer.stamp(), Source(engine, "r"))])
            clock.now += 1
    return tmp_path


def read(
    journal: Path, selection: Selection = EVERYTHING, start: int | str = "earliest", end: int | str = "latest"
) -> list:
    source = ReplayReader(journal, start=moment_of(start), end=moment_of(end), selection=selection)
    chunk = source.read()
    assert chunk.at_end
    return [(ts, batch) for batches, _ in chunk.record_batches for ts, batch in batches]


def test_batches_come_back_as_they_were(journal: Path) -> None:
    batches = read(journal)
    assert [ts for ts, _ in batches] == [1000 * SECOND, 1001 * SECOND, 1002 * SECOND]
    assert [body for _, batch in batches for body in batch.bodies] == [
        b"a",
        b"b",
        b"c",
        (b"d", b"e"),
        (b"", b"f"),
    ]
    first = batches[0][1]
    assert (first.envelope.key, first.envelope.properties["headers"], first.size) == (
        "weather.madrid",
        {"k": "weather.madrid"},
        2,
    )
    assert batches[2][1].multipart


@pytest.mark.parametrize(
    "selection, keys",
    [
        (Selection(match=("weather.*",)), ["weather.madrid", "weather.wien"]),
        (Selection(match=("news", "prefix:weather.w")), ["news", "weather.wien"]),
        (Selection(exchange="feed"), ["news"]),
        (Selection(engine="south"), ["news", "weather.wien"]),
        (Selection(engine="south/1"), ["news"]),
        (Selection(engine="sou"), []),
    ],
)
def test_only_what_is_wanted(journal: Path, selection: Selection, keys: list[str]) -> None:
    assert [batch.envelope.key for _, batch in read(journal, selection)] == keys


def test_from_and_to_are_offsets_or_times(journal: Path) -> None:
    assert [batch.envelope.key for _, batch in read(journal, start=1, end=3)] == ["weather.madrid", "news"]
    assert [
        batch.envelope.key
        for _, batch in read(journal, start="1970-01-01T00:16:41Z", end="1970-01-01T00:16:42Z")
    ] == ["news"]
    with pytest.raises(ValueError, match="'soon' is neither an offset nor a time"):
        moment_of("soon")
