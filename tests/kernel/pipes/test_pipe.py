"""The one-way queue between two ports: limits, drops, order, signals and confirmations."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of
from kernel.contracts.mixed_batch import EnvelopesByKey, Under, all_divided, has_mixed, mixed_batch
from kernel.pipes.mailbox import Mailbox
from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks


class Posts:
    """Collects what a pipe posts to a thread."""

    def __init__(self) -> None:
        self.items: list[Callable[[], Any]] = []

    def __call__(self, item: Callable[[], Any]) -> None:
        self.items.append(item)

    def run(self) -> int:
        items, self.items = self.items, []
        for item in items:
            item()
        return len(items)


def make_pipe(*, confirms: bool = False, **marks: Any) -> tuple[Pipe, Posts, Posts]:
    to_reader, to_writer = Posts(), Posts()
    pipe = Pipe(
        "a > b", WaterMarks(**marks), post_to_reader=to_reader, post_to_writer=to_writer, confirms=confirms
    )
    return pipe, to_reader, to_writer


def run(*bodies: bytes, envelope: Envelope = PLAIN) -> Batch:
    return batch_of(list(bodies), envelope)


def bodies_of(batches: list[Batch]) -> list[bytes]:
    return [body for taken in batches for body in taken.bodies]


# ---------------------------------------------------------------------- water marks


def test_writer_is_told_to_stop_at_the_high_mark_in_messages() -> None:
    pipe, _, _ = make_pipe(high=3)
    assert pipe.write(run(b"1", b"2"))
    assert not pipe.write(run(b"3"))
    assert pipe.blocked
    assert pipe.full()


def test_writer_is_told_to_stop_at_the_high_mark_in_bytes() -> None:
    pipe, _, _ = make_pipe(high=1000, high_bytes=10)
    assert pipe.write(run(b"12345"))
    assert not pipe.write(run(b"67890"))
    assert pipe.blocked


def test_writer_is_woken_once_when_the_reader_reaches_the_low_mark() -> None:
    pipe, _, to_writer = make_pipe(high=4)
    woken: list[int] = []
    pipe.on_writable = lambda: woken.append(pipe.depth())
    for number in range(4):
        pipe.write(run(b"%d" % number))
    pipe.take(1)
    assert to_writer.run() == 0, "three of four are left: above the low mark"
    pipe.take(1)
    assert to_writer.run() == 1
    assert woken == [2]
    assert not pipe.blocked
    pipe.take()
    assert to_writer.run() == 0


def test_a_batch_is_accepted_whole_even_above_the_mark() -> None:
    pipe, _, _ = make_pipe(high=2)
    assert not pipe.write(run(*[b"x"] * 10))
    assert pipe.depth() == 10
    assert bodies_of(pipe.take()) == [b"x"] * 10


def test_a_blocking_pipe_keeps_what_was_on_its_way_when_it_filled_up() -> None:
    pipe, _, _ = make_pipe(high=1)
    assert not pipe.write(run(b"1"))
    assert not pipe.write(run(b"2"))
    assert bodies_of(pipe.take()) == [b"1", b"2"]
    assert pipe.dropped == 0


def test_drop_newest_counts_what_meets_a_full_pipe() -> None:
    pipe, _, _ = make_pipe(high=2, when_full="drop-newest")
    for number in range(5):
        assert pipe.write(run(b"%d" % number)), "a dropping pipe never asks its writer to wait"
    assert bodies_of(pipe.take()) == [b"0", b"1"]
    assert pipe.dropped == 3
    assert pipe.written == 2


def test_drop_oldest_makes_room_and_counts() -> None:
    pipe, _, _ = make_pipe(high=2, when_full="drop-oldest")
    for number in range(5):
        assert pipe.write(run(b"%d" % number))
    assert bodies_of(pipe.take()) == [b"3", b"4"]
    assert pipe.dropped == 3
    assert pipe.depth() == 0


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=60),
    st.sampled_from(["drop-newest", "drop-oldest"]),
)
def test_every_message_is_taken_or_counted_as_dropped(steps: list[tuple[int, int]], when_full: str) -> None:
    pipe, _, _ = make_pipe(high=4, when_full=when_full)
    offered = taken = 0
    for count, takes in steps:
        pipe.write(run(*[b"%d" % (offered + at) for at in range(count)]))
        offered += count
        for _ in range(takes):
            taken += len(bodies_of(pipe.take(1)))
    taken += len(bodies_of(pipe.take()))
    assert taken + pipe.dropped == offered
    assert pipe.depth() == 0
    assert pipe.statistics().depth_bytes == 0


# ---------------------------------------------------------------------- order, runs and bare bodies


def test_bare_bodies_and_batches_keep_their_order() -> None:
    pipe, _, _ = make_pipe()
    keyed = Envelope(key="k")
    assert pipe.credit() > 3
    append = pipe.append_bare()
    append(b"1")
    append(b"2")
    pipe.write(run(b"3", envelope=keyed))
    append(b"4")
    batches = pipe.take()
    assert [(list(taken.bodies), taken.envelope) for taken in batches] == [
        ([b"1", b"2"], PLAIN),
        ([b"3"], keyed),
        ([b"4"], PLAIN),
    ]


def test_credit_for_bare_bodies_counts_until_it_is_given_back() -> None:
    pipe, _, _ = make_pipe(high=10)
    assert pipe.credit() == 10
    assert pipe.full()
    pipe.give_back(10)
    assert pipe.depth() == 0


def test_a_full_pipe_gives_no_credit_until_it_is_read() -> None:
    pipe, _, to_writer = make_pipe(high=2)
    pipe.write(run(b"1", b"2"))
    assert pipe.credit() == 0
    assert pipe.blocked
    pipe.take()
    assert to_writer.run() == 1
    assert pipe.credit() == 2


def test_bytes_are_balanced_after_bare_bodies() -> None:
    pipe, _, _ = make_pipe(high=100, high_bytes=10_000)
    for _ in range(50):
        grant = pipe.credit()
        append = pipe.append_bare()
        for _ in range(grant):
            append(b"x" * 100)
        pipe.take()
    assert pipe.statistics().depth_bytes == 0
    assert not pipe.write(run(b"y" * 10_000)), "the mark in bytes still holds"


def test_take_returns_about_as_much_as_asked_in_whole_batches() -> None:
    pipe, _, _ = make_pipe()
    for _ in range(4):
        pipe.write(run(*[b"a"] * 2000))
    assert len(bodies_of(pipe.take(3000))) == 4000, "the run in which the limit lies is taken whole"
    assert pipe.more()
    assert len(bodies_of(pipe.take())) == 4000
    assert not pipe.more()
    assert pipe.take() == []


# ---------------------------------------------------------------------- signals


def test_a_pipe_is_posted_once_a_batch() -> None:
    pipe, to_reader, _ = make_pipe()
    ready: list[int] = []
    pipe.on_ready = lambda: ready.append(pipe.depth())
    for _ in range(5):
        pipe.write(run(b"x"))
    assert to_reader.run() == 1
    assert ready == [5]
    pipe.take()
    pipe.write(run(b"x"))
    assert to_reader.run() == 1


def test_the_end_is_signalled_after_what_was_written() -> None:
    pipe, to_reader, _ = make_pipe()
    pipe.write(run(b"x"))
    pipe.end()
    assert to_reader.run() == 1
    assert bodies_of(pipe.take()) == [b"x"]
    assert pipe.ended


def test_asking_the_writer_goes_through_its_thread() -> None:
    pipe, _, to_writer = make_pipe()
    asked: list[tuple[str, str]] = []
    pipe.on_asked = lambda verb, pattern: asked.append((verb, pattern))
    pipe.ask_writer("subscribe", "a.*")
    assert not asked
    to_writer.run()
    assert asked == [("subscribe", "a.*")]


# ---------------------------------------------------------------------- confirmation


def test_what_was_taken_is_kept_until_it_is_confirmed() -> None:
    pipe, _, to_writer = make_pipe(confirms=True)
    told: list[int] = []
    pipe.on_confirmed = lambda: told.append(pipe.confirmed)
    pipe.write(run(b"1", b"2", b"3"))
    pipe.write(run(b"4"))
    pipe.take()
    assert bodies_of(pipe.unconfirmed()) == [b"1", b"2", b"3", b"4"]
    pipe.confirm(2)
    assert bodies_of(pipe.unconfirmed()) == [b"3", b"4"]
    pipe.confirm(2)
    assert pipe.unconfirmed() == []
    to_writer.run()
    assert told[-1] == 4


def test_drain_gives_back_what_was_not_confirmed_before_what_was_not_taken() -> None:
    pipe, _, _ = make_pipe(confirms=True)
    for number in range(4):
        pipe.write(run(b"%d" % number))
    pipe.take(2)
    pipe.confirm(1)
    assert bodies_of(pipe.drain()) == [b"1", b"2", b"3"]
    assert pipe.drain() == []


def test_a_pipe_that_does_not_confirm_keeps_nothing() -> None:
    pipe, _, to_writer = make_pipe()
    pipe.write(run(b"1"))
    pipe.take()
    pipe.confirm(1)
    assert pipe.unconfirmed() == []
    assert to_writer.run() == 0


@given(st.lists(st.tuples(st.sampled_from(["write", "take", "confirm"]), st.integers(1, 7)), max_size=80))
def test_confirmed_taken_and_waiting_make_up_what_was_written(steps: list[tuple[str, int]]) -> None:
    pipe, _, _ = make_pipe(confirms=True)
    written: list[bytes] = []
    taken: list[bytes] = []
    confirmed = 0
    for what, count in steps:
        if what == "write":
            fresh = [b"%d" % (len(written) + at) for at in range(count)]
            pipe.write(run(*fresh))
            written += fresh
        elif what == "take":
            taken += bodies_of(pipe.take(count))
        else:
            count = min(count, len(taken) - confirmed)
            pipe.confirm(count)
            confirmed += count
        assert taken == written[: len(taken)]
        assert bodies_of(pipe.unconfirmed()) == taken[confirmed:]
    assert bodies_of(pipe.drain()) == written[confirmed:]


@given(
    st.lists(
        st.tuples(st.sampled_from(["bare", "under", "write", "mixed", "take"]), st.integers(1, 4)),
        max_size=60,
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_lone_message_counts_as_one_among_others_does(
    steps: list[tuple[str, int]], confirms: bool, mixing: bool
) -> None:
    pipe, _, _ = make_pipe(confirms=confirms, high=4)
    pipe.takes_mixed = mixing and not confirms
    append = pipe.append_bare()
    keys: list[str] = []
    taken_keys: list[str] = []
    waiting: list[bytes] = []
    taken: list[bytes] = []
    number = 0
    for what, count in [*steps, ("take", 1000)]:
        if what == "take":
            got = pipe.take(count)
            taken += bodies_of(got)
            assert pipe.takes_mixed or not has_mixed(got)
            taken_keys += [
                batch.envelope.key for batch in all_divided(got, EnvelopesByKey()) for _ in batch.bodies
            ]
            assert taken == [b"%d" % at for at in range(1, len(taken) + 1)]
            # A writer that had to wait is told as soon as there is room.
            assert not pipe.blocked or pipe.depth() > pipe.marks.low
        elif what == "write":
            pipe.write(run(*[b"%d" % (number + at) for at in range(1, count + 1)]))
            number += count
            keys += [""] * count
        elif what == "mixed":
            own = [f"{number + at}" for at in range(1, count + 1)]
            pipe.write(mixed_batch([key.encode() for key in own], own))
            number += count
            keys += own
        elif pipe.credit():
            number += 1
            keys.append("k" * count if what == "under" else "")
            pipe.unders = pipe.unders or what == "under"
            append(Under(keys[-1], b"%d" % number) if what == "under" else b"%d" % number)
            pipe.give_back(pipe.written - number)
        waiting = [b"%d" % at for at in range(len(taken) + 1, number + 1)]
        assert pipe.depth() == pipe.waiting() == len(waiting)
    assert len(taken) == number == pipe.taken
    assert taken_keys == keys
    assert pipe.bytes_taken == sum(map(len, taken))
    assert pipe.statistics().depth_bytes == 0
    assert bodies_of(pipe.unconfirmed()) == (taken if confirms else [])
    assert pipe.batches_written == pipe.batches_taken


@pytest.mark.parametrize("when_full", ["block", "drop-oldest"])
def test_mixed_batches_are_dropped_and_given_back_as_messages(when_full: str) -> None:
    pipe, _, _ = make_pipe(high=3, when_full=when_full)
    pipe.write(mixed_batch([b"1", b"2"], ["a", "b"]))
    pipe.write(mixed_batch([b"3", b"4"], ["c", "c"]))
    pipe.write(run(b"5"))
    kept = [b"1", b"2", b"3", b"4", b"5"] if when_full == "block" else [b"3", b"4", b"5"]
    assert pipe.dropped == 5 - len(kept)
    assert pipe.depth() == pipe.waiting() == len(kept)
    left = pipe.drain()
    assert bodies_of(left) == kept
    assert [(batch.envelope.key, len(batch)) for batch in left][-2:] == [("c", 2), ("", 1)]


# ---------------------------------------------------------------------- two threads


@pytest.mark.slow
@pytest.mark.parametrize("high", [8, 32_768])
@pytest.mark.parametrize("bare", [False, True], ids=["batches", "bare"])
def test_two_threads_hammering_a_pipe_lose_and_reorder_nothing(high: int, bare: bool) -> None:  # noqa: C901
    total = 40_000
    reader_box, writer_box = Mailbox(), Mailbox()
    pipe = Pipe(
        "hammer",
        WaterMarks(high=high),
        post_to_reader=reader_box.post,
        post_to_writer=writer_box.post,
    )
    got: list[bytes] = []

    def ready() -> None:
        got.extend(bodies_of(pipe.take(100)))
        if pipe.more():
            reader_box.post(ready)

    pipe.on_ready = ready

    def wait(box: Mailbox) -> None:
        box.bell.sleeping = True
        if box.posted:
            box.bell.sleeping = False
            return
        assert box.bell.wait(60), "a wake-up was lost"

    def write() -> None:
        written = 0
        while written < total:
            writer_box.process()
            if bare:
                grant = pipe.credit()
                if not grant:
                    wait(writer_box)
                    continue
                used = min(grant, total - written, 3)
                for _ in range(used):
                    pipe.append_bare()(b"%d" % written)
                    written += 1
                    if not pipe.signalled:
                        pipe.signal()
                pipe.give_back(grant - used)
            else:
                going = pipe.write(run(b"%d" % written, b"%d" % (written + 1)))
                written += 2
                while not going and pipe.blocked:
                    wait(writer_box)
                    writer_box.process()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while len(got) < total:
            if not reader_box.process():
                wait(reader_box)
    finally:
        thread.join(60)
        reader_box.bell.close()
        writer_box.bell.close()
    assert not thread.is_alive()
    assert got == [b"%d" % number for number in range(total)]
    assert pipe.depth() == 0


def test_drop_oldest_under_two_threads_accounts_for_every_message() -> None:
    total = 30_000
    pipe = Pipe(
        "drops", WaterMarks(high=4, when_full="drop-oldest"), post_to_reader=Posts(), post_to_writer=Posts()
    )
    got: list[bytes] = []
    finished = threading.Event()

    def read() -> None:
        while not finished.is_set():
            got.extend(bodies_of(pipe.take(3)))
        got.extend(bodies_of(pipe.take()))

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(total):
        pipe.write(run(b"%d" % number))
    finished.set()
    thread.join(60)
    assert len(got) + pipe.dropped == total
    assert [int(body) for body in got] == sorted(int(body) for body in got)
    assert pipe.depth() == 0
