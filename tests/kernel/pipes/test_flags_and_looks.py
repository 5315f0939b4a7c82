"""No wake-up is lost, though a store may become visible late, as it may in a build without the interpreter's lock."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernel.contracts.message import batch_of_one
from kernel.pipes import pipe as pipe_module
from kernel.pipes.mailbox import Mailbox
from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks

DEADLOCK = 30.0
"""Seconds after which a reader that still sleeps was not woken."""


class LateDeque(deque[Any]):
    """A queue on which another thread's step becomes visible only when its lock is taken.

    ``late`` is what the other thread does "before": it takes effect at the first operation that locks the queue,
    which a plain look (``len``, ``bool``) does not.
    """

    late: Callable[[], Any] | None = None
    deleted: Callable[[], Any] | None = None
    """Called behind the deletion of an item."""

    def _lock(self) -> None:
        late, self.late = self.late, None
        if late is not None:
            late()

    def rotate(self, n: int = 1, /) -> None:
        self._lock()
        super().rotate(n)

    def popleft(self) -> Any:
        self._lock()
        return super().popleft()

    def __delitem__(self, index: Any, /) -> None:
        self._lock()
        super().__delitem__(index)
        if self.deleted is not None:
            self.deleted()


def make_pipe(**marks: Any) -> tuple[Pipe, LateDeque]:
    pipe = Pipe("a > b", WaterMarks(**marks), post_to_reader=_ignore, post_to_writer=_ignore)
    pipe._items = items = LateDeque()
    return pipe, items


def _ignore(_: object) -> None:
    """Posted nowhere."""


def test_a_post_that_becomes_visible_late_keeps_the_reader_awake() -> None:
    mailbox = Mailbox()
    mailbox.posted = posted = LateDeque()
    posted.late = lambda: posted.append(_ignore)
    assert not mailbox.may_sleep()
    assert mailbox.bell.sleeping, "whoever posts from now on has to ring"


def test_a_message_that_becomes_visible_late_is_taken() -> None:
    pipe, items = make_pipe()
    pipe.signalled = True
    items.late = lambda: pipe.write(batch_of_one(b"late"))  # sees ``signalled``, so it does not signal again
    assert [batch.bodies for batch in pipe.take()] == [[b"late"]]


def test_an_end_of_the_pipe_takes_the_lock_between_the_mark_and_the_look() -> None:
    pipe, items = make_pipe()
    pipe.signalled = True
    items.late = lambda: setattr(pipe, "signalled", False)  # the reader's store
    signals: list[bool] = []
    pipe._post_to_reader = lambda _: signals.append(pipe.ended)
    pipe.end()
    assert signals == [True]


def test_a_writer_that_blocks_sees_what_was_taken_before() -> None:
    pipe, items = make_pipe(high=2)
    pipe.write(batch_of_one(b"1"))
    items.late = lambda: setattr(pipe, "taken", 2)  # the reader's count
    assert pipe.write(batch_of_one(b"2")), "there is room: nobody would wake it"
    assert not pipe.blocked


def test_credit_that_a_reader_makes_room_for_at_the_last_moment_is_counted() -> None:
    pipe, items = make_pipe(high=2)
    assert pipe.credit() == 2
    append = pipe.append_bare()
    append(b"1")
    append(b"2")
    items.late = pipe.take  # between the writer's first look and its flag
    assert pipe.credit() == 1
    append(b"3")
    pipe.take()
    assert pipe.depth() == 0


def test_a_reader_that_took_sees_a_writer_that_blocked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_module, "FREE_THREADED", True)
    pipe, items = make_pipe(high=2)
    pipe.write(batch_of_one(b"1"))
    woken: list[bool] = []
    pipe._post_to_writer = lambda _: woken.append(True)

    def block_late() -> None:
        items.late = lambda: setattr(
            pipe, "blocked", True
        )  # the writer's store, behind what the reader takes

    items.deleted = block_late
    pipe.take()
    assert woken == [True]


def test_what_was_taken_is_kept_when_the_writer_drops_the_rest() -> None:
    pipe, items = make_pipe(high=8, when_full="drop-oldest")
    for number in range(4):
        pipe.write(batch_of_one(b"%d" % number))
    pop = items.popleft
    pops = 0

    def drops_after_two() -> Any:
        nonlocal pops
        pops += 1
        if pops == 3:
            items.clear()  # the writer's part of ``drop-oldest``
        return pop()

    items.popleft = drops_after_two  # type: ignore[method-assign]
    assert [batch.bodies for batch in pipe.take()] == [[b"0"], [b"1"]]


class ChangedDeque(deque[Any]):
    """A queue that other threads change during each of the next ``changes`` loops over it."""

    changes = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            if self.changes:
                self.changes -= 1
                self.rotate(1)  # and the loop over it raises
            yield item


@pytest.mark.parametrize("changes", [1, 1000])
def test_a_queue_that_changes_while_it_is_copied_is_counted(changes: int) -> None:
    pipe, _ = make_pipe(high=8)
    pipe._items = items = ChangedDeque()
    pipe.write(batch_of_one(b"1"))
    pipe.write(batch_of_one(b"2"))
    items.changes = changes
    assert pipe.waiting() == 2
    assert pipe.statistics().depth == 2
    assert items.changes < changes, "it was not changed meanwhile"


@pytest.fixture
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switching")
def test_two_threads_that_fall_asleep_all_the_time_lose_no_wake_up() -> None:
    """Each side answers one message with one: a single lost wake-up stops both for good."""
    rounds = 3_000
    here, there = Mailbox(), Mailbox()
    pipes = (
        Pipe("there", WaterMarks(high=1), post_to_reader=there.post, post_to_writer=here.post),
        Pipe("back", WaterMarks(high=1), post_to_reader=here.post, post_to_writer=there.post),
    )
    for pipe in pipes:
        pipe.on_ready = pipe.on_writable = _nothing
    errors: list[str] = []

    def bounce(mailbox: Mailbox, incoming: Pipe, outgoing: Pipe, *, begins: bool) -> None:
        if begins:
            outgoing.write(batch_of_one(b"ball"))
        for _ in range(rounds):
            while True:
                # Before the look into the pipe: a post that is processed after it would wake nobody.
                mailbox.process()
                if batches := incoming.take():
                    break
                if mailbox.may_sleep() and not mailbox.bell.wait(DEADLOCK):
                    errors.append(f"{incoming.name}: nobody rang")
                    return
                mailbox.bell.sleeping = False
            for batch in batches:
                outgoing.write(batch)

    answering = threading.Thread(
        target=bounce, args=(there, pipes[0], pipes[1]), kwargs={"begins": False}, daemon=True
    )
    answering.start()
    bounce(here, pipes[1], pipes[0], begins=True)
    answering.join(DEADLOCK)
    assert not errors
    assert not answering.is_alive()
    for mailbox in (here, there):
        mailbox.bell.close()


def _nothing() -> None:
    """Being woken is all."""
