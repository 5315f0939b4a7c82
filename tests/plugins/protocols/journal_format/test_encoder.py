"""The encoder's short cuts: memory that is used again, the place of the CRC, and room for what compression makes larger."""

import os

import pyarrow as pa
import pytest

from kernel.contracts.message import Envelope, batch_of
from plugins.protocols.journal_format import record_batch as batch_module
from plugins.protocols.journal_format.buffer_pool import PAGE, BufferPool
from plugins.protocols.journal_format.commit import commit_crc, find_check
from plugins.protocols.journal_format.envelopes import NOWHERE
from plugins.protocols.journal_format.record_batch import EncodedRecordBatch, RecordBatchEncoder


def encoded(
    encoder: RecordBatchEncoder, bodies: list[bytes], offset: int = 0, key: str = ""
) -> EncodedRecordBatch:
    return encoder.encode(offset, [(batch_of(bodies, Envelope(key=key)), 1, NOWHERE)])


def test_a_body_that_looks_like_a_check_is_left_alone() -> None:
    encoder = RecordBatchEncoder()
    trap = b"crc32=00000000" * 2000
    for number, key in enumerate(("a" * 5000, "b", "a" * 5000, "a" * 5000)):
        commit = encoded(encoder, [trap, trap], number, key)
        assert bytes(commit.data).count(b"00000000") == 4000
        assert commit.entry.check_at == find_check(pa.py_buffer(commit.data))
        assert commit_crc(commit.data, commit.entry.check_at) == commit.entry.crc


def test_memory_that_was_given_back_is_used_again_and_makes_the_same_bytes() -> None:
    encoder, fresh = RecordBatchEncoder(), RecordBatchEncoder()
    first = encoded(encoder, [os.urandom(5000)])
    memory = first.data.obj
    encoder.reuse(first)
    second = encoded(encoder, [b"x" * 100] * 20)
    assert second.data.obj is memory
    assert second.data == encoded(fresh, [b"x" * 100] * 20).data


def test_memory_that_is_in_use_is_nobody_elses() -> None:
    encoder = RecordBatchEncoder()
    first = encoded(encoder, [b"1" * 5000])
    kept = bytes(first.data)
    second = encoded(encoder, [b"2" * 5000], 1)
    assert first.data.obj is not second.data.obj
    assert first.data == kept


def test_two_buffers_are_kept_and_no_large_ones() -> None:
    buffers = BufferPool()
    taken = [buffers.take(size) for size in (10, 10, 10, 5 << 20)]
    for memory in taken:
        buffers.give_back(memory)
    again = {id(buffers.take(10).obj) for _ in range(3)}
    assert len(again & {id(memory.obj) for memory in taken}) == 2


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_buffer_that_is_too_small_is_replaced_by_a_larger_one(
    monkeypatch: pytest.MonkeyPatch, compression: str | None
) -> None:
    body = os.urandom(3 << 20)
    wanted = encoded(RecordBatchEncoder(compression), [body])
    monkeypatch.setattr(batch_module, "_FRAMING", -(2 << 20))
    assert encoded(RecordBatchEncoder(compression), [body]).data == wanted.data


@pytest.mark.parametrize("position", [0, 1040, PAGE, PAGE - 8, 7 * PAGE + 16])
def test_a_commit_lies_in_memory_as_it_will_in_the_file(position: int) -> None:
    commit = RecordBatchEncoder().encode(0, [(batch_of([b"x"]), 1, NOWHERE)], position)
    assert commit.lead == position % PAGE
    assert commit.data.tobytes() == encoded(RecordBatchEncoder(), [b"x"]).data.tobytes()


def test_an_error_that_a_larger_buffer_does_not_avoid_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = RecordBatchEncoder()

    def broken(*_: object) -> int:
        raise OSError("codec")

    monkeypatch.setattr(encoder, "_write", broken)
    with pytest.raises(OSError, match="codec"):
        encoded(encoder, [b"x"])
