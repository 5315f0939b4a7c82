"""Reading many pipes in turn."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import batch_of
from kernel.pipes.fair_queue import FairQueue
from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks


def make_queue(count: int) -> tuple[FairQueue, list[Pipe]]:
    queue = FairQueue()
    pipes = []
    for number in range(count):
        pipe = Pipe(f"p{number}", WaterMarks(), post_to_reader=_ignore, post_to_writer=_ignore)
        queue.attach(pipe)
        pipes.append(pipe)
    return queue, pipes


def _ignore(_: Any) -> None:
    """Nobody listens."""


def put(queue: FairQueue, pipe: Pipe, *bodies: bytes) -> None:
    for body in bodies:
        pipe.write(batch_of([body]))
    queue.activate(pipe)


def test_active_pipes_take_turns() -> None:
    queue, (a, b, c) = make_queue(3)
    for pipe in (a, b, c):
        put(queue, pipe, *[pipe.name.encode()] * 2)
    order = []
    while (got := queue.take(1)) is not None:
        order.append(got[0])
    assert order[:3] == [a, b, c]
    assert sorted(order[3:], key=lambda pipe: pipe.name) == [a, b, c]


def test_a_busy_pipe_does_not_starve_another() -> None:
    queue, (busy, quiet) = make_queue(2)
    put(queue, busy, *[b"x"] * 1000)
    put(queue, quiet, b"y")
    assert {queue.take(10)[0], queue.take(10)[0]} == {busy, quiet}  # type: ignore[index]


def test_each_active_pipe_gets_its_share_of_what_is_asked() -> None:
    queue, pipes = make_queue(4)
    for pipe in pipes:
        put(queue, pipe, *[b"x"] * 100)
    got = queue.take(40)
    assert got is not None
    assert sum(len(batch) for batch in got[1]) == 10


def test_an_idle_queue_gives_nothing() -> None:
    queue, _ = make_queue(3)
    assert queue.take(10) is None
    assert queue.active == 0


def test_a_pipe_that_ends_with_nothing_in_it_is_not_active() -> None:
    queue, (pipe, other) = make_queue(2)
    ended: list[Pipe] = []
    queue.on_ended = ended.append
    pipe.end()
    assert queue.activate(pipe)
    assert (queue.active, queue.pipes, ended) == (0, (other,), [pipe])


def test_a_pipe_that_was_never_attached_is_not_activated() -> None:
    queue, (pipe,) = make_queue(1)
    queue.detach(pipe)
    queue.detach(pipe)
    assert not queue.activate(pipe)
    assert len(queue) == 0


def test_a_pipe_that_has_ended_leaves_once_it_is_read_empty() -> None:
    queue, (pipe,) = make_queue(1)
    put(queue, pipe, b"last")
    pipe.end()
    got = queue.take(10)
    assert got is not None
    assert [bytes(batch.bodies[0]) for batch in got[1]] == [b"last"]
    assert len(queue) == 0


def test_the_end_of_an_empty_pipe_is_seen() -> None:
    queue, (pipe,) = make_queue(1)
    pipe.end()
    queue.activate(pipe)
    assert queue.take(10) is None
    assert len(queue) == 0


class CountingList(list[Pipe]):
    """Counts how often it is asked for an element."""

    reads = 0

    def __getitem__(self, at: Any) -> Any:
        type(self).reads += 1
        return super().__getitem__(at)


def test_activation_and_reading_cost_the_same_among_few_and_many_idle_pipes() -> None:
    costs = []
    # More than three: none of these pipes is at the border already.
    for count in (6, 3000):
        queue, pipes = make_queue(count)
        queue._pipes = CountingList(queue._pipes)
        CountingList.reads = 0
        for pipe in (pipes[-1], pipes[-2], pipes[-3]):
            put(queue, pipe, b"x")
        while queue.take(10):
            pass
        costs.append(CountingList.reads)
    assert costs[0] == costs[1]


@given(
    st.lists(st.tuples(st.sampled_from(["put", "take", "detach", "attach"]), st.integers(0, 5)), max_size=100)
)
def test_active_pipes_are_those_with_something_whatever_happens(steps: list[tuple[str, int]]) -> None:
    queue, pipes = make_queue(6)
    attached = set(pipes)
    for what, number in steps:
        pipe = pipes[number]
        if what == "put" and pipe in attached:
            put(queue, pipe, b"x")
        elif what == "take":
            something = any(each.more() for each in attached)
            assert (queue.take(number + 1) is not None) == something
        elif what == "detach":
            queue.detach(pipe)
            attached.discard(pipe)
        elif what == "attach" and pipe not in attached:
            queue.attach(pipe)
            attached.add(pipe)
            if pipe.more():
                queue.activate(pipe)
        assert set(queue.pipes) == attached
        assert set(queue.pipes[: queue.active]) == {each for each in attached if each.more()}


class HastyPipe(Pipe):
    """Its writer writes once more and leaves just after the reader has found it empty."""

    def more(self) -> bool:
        found = super().more()
        if not found and not self.ended:
            self.write(batch_of([b"last"]))
            self.end()
        return found


def test_what_is_written_just_before_the_end_is_read() -> None:
    queue = FairQueue()
    ready: list[Any] = []
    pipe = HastyPipe("p", WaterMarks(), post_to_reader=ready.append, post_to_writer=_ignore)
    queue.attach(pipe)
    put(queue, pipe, b"first")
    ready.clear()
    got = []
    while (taken := queue.take(10)) is not None or ready:
        got += [bytes(body) for batch in (taken[1] if taken else []) for body in batch.bodies]
        if ready:
            ready.clear()
            queue.activate(pipe)
    assert got == [b"first", b"last"]
    assert len(queue) == 0
