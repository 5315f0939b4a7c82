"""The batch reader: messages one by one, many at a time, or as runs, in any mixture and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of
from kernel.contracts.mixed_batch import mixed_batch
from kernel.hosting.message_reader import MessageReader

OWN = Envelope(key="own", reply_to="somewhere")


def reader_of(*batches: Batch) -> MessageReader:
    reader = MessageReader()
    reader.add(batches)
    return reader


def test_a_whole_batch_is_handed_out_as_it_came() -> None:
    batch = batch_of([b"1", b"2"])
    assert reader_of(batch).run(10) is batch


def test_a_batch_is_cut_where_it_is_asked_to_be() -> None:
    reader = reader_of(batch_of([b"1", b"2", b"3"]))
    assert list(reader.run(2).bodies) == [b"1", b"2"]
    assert len(reader) == 1
    assert list(reader.run(2).bodies) == [b"3"]
    assert not reader


def test_parts_are_joined_as_a_body_and_kept_as_a_message() -> None:
    reader = reader_of(batch_of([(b"a", b"b"), (b"c", b"d")], multipart=True))
    reader.next_batch()
    assert next(reader.bodies) == b"ab"
    message = reader.message()
    assert (message.body, message.parts) == (b"cd", (b"c", b"d"))


def test_empty_batches_are_passed_over() -> None:
    reader = reader_of(batch_of([]), batch_of([b"1"]))
    assert len(reader) == 1
    assert reader.message().body == b"1"


@given(st.lists(st.lists(st.binary(max_size=3), max_size=5), max_size=6), st.randoms(use_true_random=False))
def test_every_mixture_reads_everything_in_order(chunks: list[list[bytes]], chance: object) -> None:
    envelopes = [Envelope(key=str(number)) for number in range(len(chunks))]
    reader = reader_of(*map(batch_of, chunks, envelopes))
    expected = [(body, envelope) for chunk, envelope in zip(chunks, envelopes, strict=True) for body in chunk]
    read: list[tuple[bytes, Envelope]] = []
    while reader:
        assert len(reader) == len(expected) - len(read)
        if chance.random() < 0.5:  # type: ignore[attr-defined]
            message = reader.message()
            read.append((bytes(message.body), message.envelope))
        else:
            batch = reader.run(2)
            read += [(body, batch.envelope) for body in batch.bodies]
    assert read == expected


@given(st.lists(st.lists(st.binary(max_size=3), max_size=5), max_size=6), st.integers(0, 10))
def test_what_is_left_is_read_at_once(chunks: list[list[bytes]], before: int) -> None:
    reader = reader_of(*map(batch_of, chunks))
    bodies = [body for chunk in chunks for body in chunk]
    read = [bytes(reader.message().body) for _ in range(min(before, len(bodies)))]
    assert read + reader.take(1 << 30) == bodies
    assert not reader
    assert reader.take(1 << 30) == []


def test_parts_are_joined_when_all_is_read_at_once() -> None:
    reader = reader_of(batch_of([(b"1", b"2"), (b"3",)], multipart=True), batch_of([b"4"]))
    assert reader.take(1 << 30) == [b"12", b"3", b"4"]


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", PLAIN, OWN]), max_size=6), max_size=5),
    st.randoms(use_true_random=False),
)
def test_messages_under_envelopes_of_their_own_come_with_these(
    chunks: list[list[Envelope | str]], chance: object
) -> None:
    entries = [entry for chunk in chunks for entry in chunk]
    bodies = [b"%d" % number for number in range(len(entries))]
    numbered = iter(bodies)
    reader = reader_of(*(mixed_batch([next(numbered) for _ in chunk], chunk) for chunk in chunks))
    read: list[tuple[bytes, Envelope]] = []
    while reader:
        assert len(reader) == len(entries) - len(read)
        if chance.random() < 0.5:  # type: ignore[attr-defined]
            message = reader.message()
            read.append((bytes(message.body), message.envelope))
        else:
            batch = reader.run(2)
            assert batch.size == sum(map(len, batch.bodies))
            read += [(body, batch.envelope) for body in batch.bodies]
    assert [body for body, _ in read] == bodies
    for (_, envelope), entry in zip(read, entries, strict=True):
        # One object for each key, since what is decided for an envelope is remembered by it.
        assert envelope is (entry if isinstance(entry, Envelope) else {e.key: e for _, e in read}[entry])
        assert isinstance(entry, Envelope) or (envelope.key, envelope.exchange) == (entry, "")


def test_neighbours_under_one_envelope_are_one_run() -> None:
    reader = reader_of(mixed_batch([b"1", b"2", b"3", b"4"], ["a", "a", OWN, OWN]))
    runs = [reader.run(10) for _ in range(2)]
    assert [list(run.bodies) for run in runs] == [[b"1", b"2"], [b"3", b"4"]]
    assert runs[0].envelope.key == "a"
    assert runs[1].envelope is OWN
