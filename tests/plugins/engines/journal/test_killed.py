"""A writer that is killed at any moment, again and again: what it had said to be written is there."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plugins.engines.journal.writer import JournalWriter
from plugins.protocols.journal_format.reader import JournalReader

_WRITER = """
import sys
from kernel.contracts.message import Envelope, batch_of
from plugins.engines.journal.writer import JournalWriter, WriterSettings
from plugins.protocols.journal_format.envelopes import NOWHERE

size = int(sys.argv[2])
with JournalWriter(sys.argv[1], WriterSettings(roll_bytes=300_000 + 100 * size)) as writer:
    envelopes = [Envelope(key=f"k.{number}") for number in range(3)]
    while True:
        first = writer.next_offset
        runs = [batch_of([(b"%d" % (first + at)).ljust(size)], envelopes[at % 3]) for at in range(1 + first % 50)]
        entry = writer.append([(run, writer.stamp(), NOWHERE) for run in runs])
        print(entry.end, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 40_000], ids=["through the cache", "around it"])
def test_nothing_that_was_said_to_be_written_is_lost(tmp_path: Path, size: int) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    said = 0
    for _ in range(12):
        program = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path), str(size)], stdout=subprocess.PIPE, text=True
        )
        assert program.stdout is not None
        first = program.stdout.readline()
        time.sleep(chance.uniform(0, 0.2))  # any moment
        program.kill()
        lines = [first, *program.stdout.read().splitlines()]
        program.wait()
        program.stdout.close()
        said = max([said, *(int(line) for line in lines[:-1])])  # the last one may be half a line
        with JournalWriter(tmp_path) as writer:
            assert writer.next_offset >= said, f"seed {seed}"
    offset = 0
    for record_batch in JournalReader(tmp_path).record_batches(columns=["offset", "key", "body"]):
        for row in record_batch.to_pylist():
            assert row["offset"] == offset, f"seed {seed}"
            assert row["body"] == (b"%d" % offset).ljust(size), f"seed {seed}"
            offset += 1
    assert offset >= said > 50
