"""Lines about a running kernel: for people and for programs."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kernel.cli.event_log import EventLog, LogRecords
from kernel.contracts.engine import EngineEvent
from tests.notes import for_each

EVENT = EngineEvent(engine="link", what="retrying", peer="h:1", detail="refused", next_try=1.25)


def test_a_line_for_people_says_when_what_who_and_what_next() -> None:
    stream = io.StringIO()
    EventLog(stream=stream).event(EVENT)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d retrying     link h:1 refused \(next try in 1\.2 s\)\n", stream.getvalue()
    )


@for_each(
    "detail, shown",
    [
        ("h:1 hung up", "h:1 hung up"),
        ("cannot connect to h:1: Connection refused", "cannot connect to h:1: Connection refused"),
        # Another port, and another host.
        ("h:18 is full", "h:1 h:18 is full"),
        ("oh:1 is full", "h:1 oh:1 is full"),
        ("", "h:1"),
    ],
)
def test_a_peer_that_the_detail_names_is_named_once(detail: str, shown: str) -> None:
    stream, as_json = io.StringIO(), io.StringIO()
    event = EngineEvent(engine="link", what="retrying", peer="h:1", detail=detail)
    EventLog(stream=stream).event(event)
    assert stream.getvalue().rstrip().endswith(f" link {shown}")
    EventLog(stream=as_json, as_json=True).event(event)
    assert json.loads(as_json.getvalue())["peer"] == "h:1"


def test_a_line_for_programs_has_what_is_known() -> None:
    stream = io.StringIO()
    log = EventLog(as_json=True, stream=stream)
    log.event(EVENT)
    log.write("ready", detail="")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time") <= second.pop("time")
    assert first == {
        "what": "retrying",
        "engine": "link",
        "peer": "h:1",
        "detail": "refused",
        "next_try": 1.25,
    }
    assert second == {"what": "ready"}


def test_a_traceback_is_written_if_it_is_wanted() -> None:
    failed = EngineEvent(
        engine="link", what="failed", detail="KeyError: 'x'", trace="Traceback\n  here\x1b[2J"
    )
    plain, verbose, as_json = io.StringIO(), io.StringIO(), io.StringIO()
    EventLog(stream=plain).event(failed)
    assert plain.getvalue().count("\n") == 1
    EventLog(stream=verbose, tracebacks=True).event(failed)
    assert verbose.getvalue().splitlines()[1:] == ["    Traceback", "      here\\x1b[2J"]
    EventLog(stream=as_json, tracebacks=True, as_json=True).event(failed)
    assert json.loads(as_json.getvalue())["trace"] == failed.trace


def test_a_reader_that_has_gone_stops_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    EventLog(stream=stream).event(EVENT)


def test_a_reader_that_does_not_read_stops_nothing_and_is_told_what_it_missed() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w") as stream:
        log = EventLog(stream=stream, as_json=True, rate=0)
        for _ in range(5_000):
            log.event(EVENT)
        # The program itself waits for room, and meanwhile engines go on.
        ready = threading.Thread(target=log.write, args=("ready",))
        ready.start()
        log.event(EVENT)
        lines = [json.loads(reader.readline())]
        while lines[-1]["what"] != "ready":
            lines.append(json.loads(reader.readline()))
        ready.join()
    *events, missing, _ = lines
    assert {line["what"] for line in events} == {EVENT.what}
    assert missing["what"] == "log"
    assert missing["more"] == 5_001 - len(events)
    assert missing["detail"] == f"{missing['more']:,} lines are missing: nobody read in time"


def test_a_disk_that_is_full_stops_nothing() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    EventLog(stream=Full()).event(EVENT)


def test_what_the_terminal_has_no_letter_for_is_escaped() -> None:
    kept = io.BytesIO()
    log = EventLog(stream=io.TextIOWrapper(kept, "ascii"))
    log.write("ready", detail="Zürich \udcff")
    assert kept.getvalue().endswith(b"ready        kernel Z\\xfcrich \\udcff\n")


def test_what_a_peer_has_said_is_one_line_and_gives_a_terminal_no_orders() -> None:
    stream = io.StringIO()
    said = EngineEvent(engine="link", what="refused", detail="no\r\n04:00:00 ready        \x1b[2Jkernel")
    EventLog(stream=stream).event(said)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith("link no\\r 04:00:00 ready        \\x1b[2Jkernel\n")


class Timer(threading.Timer):
    """Ends the second when the test says so."""

    made: list[Timer]

    def __init__(self, seconds: float, end: Callable[[], Any]) -> None:
        super().__init__(seconds, end)
        self.made.append(self)

    def start(self) -> None:
        """The test calls ``function``."""


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[Timer]:
    monkeypatch.setattr(Timer, "made", [], raising=False)
    return Timer.made


def test_a_storm_is_a_few_lines_and_a_number(timers: list[Timer]) -> None:
    stream = io.StringIO()
    log = EventLog(as_json=True, stream=stream, rate=3, timer=Timer)
    for number in range(1000):
        log.event(EngineEvent(engine="broker", what="connected", peer=f"h:{number}"))
        if number == 500:
            # Another sort is not lost among them, nor is the same sort of another engine.
            log.event(EngineEvent(engine="broker", what="refused"))
            log.event(EngineEvent(engine="link", what="connected"))
    (timer,) = timers
    timer.function()
    log.event(EngineEvent(engine="broker", what="connected", peer="h:1000"))
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [(row["what"], row["engine"], row.get("peer"), row.get("more")) for row in rows]
    assert told == [
        *(("connected", "broker", f"h:{number}", None) for number in range(3)),
        ("refused", "broker", None, None),
        ("connected", "link", None, None),
        ("connected", "broker", None, 997),
        ("connected", "broker", "h:1000", None),
    ]
    assert len(timers) == 2


def test_what_was_counted_is_told_at_the_end(timers: list[Timer]) -> None:
    stream = io.StringIO()
    log = EventLog(stream=stream, rate=1, timer=Timer)
    for _ in range(3):
        log.event(EVENT)
    log.end_second()
    assert stream.getvalue().splitlines()[-1].endswith("retrying     link and 2 more within a second")
    # The timer of that second may have fired at the same moment.
    timers[0].function()
    assert len(stream.getvalue().splitlines()) == 2


def test_the_rate_may_be_unlimited() -> None:
    stream = io.StringIO()
    log = EventLog(stream=stream, rate=0)
    for _ in range(100):
        log.event(EVENT)
    assert len(stream.getvalue().splitlines()) == 100


def test_records_of_libraries_are_in_the_same_log() -> None:
    stream = io.StringIO()
    handler = LogRecords(EventLog(as_json=True, stream=stream))
    logger = logging.Logger("library")
    logger.addHandler(handler)
    logger.info("of no interest")
    logger.warning("beware of %s", "the dog")
    assert [json.loads(line)["detail"] for line in stream.getvalue().splitlines()] == [
        "library: beware of the dog"
    ]
    assert json.loads(stream.getvalue())["what"] == "warning"
