"""Journals of every released format, written once and read for ever.

``tests/data/journals/vN`` was written by the version that introduced format N.  It is never written again: if one of these tests
fails, what is wrong is the reader.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from kernel.contracts.message import Envelope
from plugins.engines.journal.positions import positions
from plugins.protocols.journal_format.envelopes import fields_of
from plugins.protocols.journal_format.reader import Bounds, JournalReader
from plugins.protocols.journal_format.schema import NEVER_NULL

JOURNALS = Path(__file__).parents[3] / "data" / "journals"
BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize("kind, seconds", [("plain", 0), ("lz4", 3), ("zstd", 6), ("compacted", 9)])
def test_format_1(kind: str, seconds: int) -> None:
    reader = JournalReader(JOURNALS / "v1" / kind)
    assert reader.bounds() == Bounds(0, 9)
    rows = [row for record_batch in reader.record_batches() for row in record_batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(9))
    assert not any(row[name] is None for row in rows for name in NEVER_NULL)
    for number in range(3):
        sunny, rain, parts = rows[3 * number : 3 * number + 3]
        assert (sunny["body"], rain["body"]) == (b"sunny %d" % number, b"rain %d" % number)
        assert (parts["body"], parts["parts"], sunny["parts"]) == (
            b"part onepart %d" % number,
            [8, 0, 6],
            None,
        )
        assert sunny["ts"] == parts["ts"] == BEGAN + timedelta(seconds=seconds + number)
        assert (sunny["engine"], sunny["route"]) == ("broker", "broker -> journal")
        assert sunny["sent"] == BEGAN - timedelta(seconds=1)
        envelope = Envelope(**fields_of(sunny))
        assert (envelope.key, envelope.exchange, envelope.reply_to) == ("weather.wien", "feed", "answers")
        assert (envelope.persistent, envelope.priority, envelope.expiration) == (True, 5, 60_000)
        assert envelope.properties == {
            "headers": {
                "n": number,
                "bytes": b"\xff",
                "when": BEGAN,
                "price": Decimal("1.50"),
                "deep": {"list": [1, None, True, 2.5]},
            },
            "content_type": "text/plain",
            "message_id": f"m{number}",
            "timestamp": BEGAN - timedelta(seconds=1),
        }
        assert Envelope(**fields_of(parts)).key == "key \udcff"


def test_positions_of_format_1() -> None:
    assert positions(JOURNALS / "v1" / "plain") == {"spark": 5}
