"""Lines about a running kernel: for people and for programs."""

from __future__ import annotations

import errno
import io
import json
import re

from kernel.cli.event_log import EventLog
from kernel.contracts.engine import EngineEvent

EVENT = EngineEvent(engine="link", what="retrying", peer="h:1", detail="refused", next_try=1.25)


def test_a_line_for_people_says_when_what_who_and_what_next() -> None:
    stream = io.StringIO()
    EventLog(stream=stream).event(EVENT)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d retrying     link h:1 refused \(next try in 1\.2 s\)\n", stream.getvalue()
    )


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
