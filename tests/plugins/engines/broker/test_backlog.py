"""The order of ready messages, where some come back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.engines.broker.backlog import Backlog
from plugins.engines.broker.span import Span


@dataclass
class Page:
    """Messages on disk, with a gap for each position that is not in ``spans``."""

    spans: list[Span]
    batch: None = None
    expires_at: float | None = None

    @property
    def first(self) -> int:
        return self.spans[0].first

    @property
    def stop(self) -> int:
        return self.spans[-1].base + self.spans[-1].stop

    @property
    def count(self) -> int:
        return sum(map(len, self.spans))

    @property
    def size(self) -> int:
        return sum(span.size() for span in self.spans)


def _backlog(levels: int = 1) -> Backlog:
    return Backlog(levels - 1, lambda page, following: page.spans)  # type: ignore[attr-defined]  # a ``Page``


def _span(position: int, batch: Batch | None = None) -> Span:
    batch = batch or batch_of([str(position).encode()], Envelope(key="k"))
    return Span(position, batch, 0, len(batch.bodies))


def _bodies(spans: list[Span]) -> list[bytes]:
    return [bytes(body) for span in spans for body in span.as_batch().bodies]


@given(
    st.permutations(range(12)), st.sets(st.integers(0, 11)), st.sets(st.integers(0, 12)), st.integers(0, 4)
)
def test_what_comes_back_takes_its_old_place(
    order: list[int], there: set[int], looks: set[int], paged: int
) -> None:
    backlog = _backlog()
    ready = sorted(there)
    if ready[:paged]:
        page: Any = Page([_span(position) for position in ready[:paged]])
        backlog.append_page(page, 0)
    for position in ready[paged:]:
        backlog.append(_span(position), len(str(position)))
    for number, position in enumerate(order):
        if position not in there:
            backlog.put_back(_span(position))
        if number in looks:
            backlog.next_expiry()
    backlog.append(_span(12), 2)
    assert backlog.count == 13
    # A page is read when it is in front, and nothing is taken in that step.
    taken: list[Span] = []
    while backlog.count:
        taken += backlog.take(5, 1 << 20)[0]
    assert _bodies(taken) == [str(position).encode() for position in range(13)]
    assert (backlog.count, backlog.size, backlog.paged) == (0, 0, 0)


def test_each_priority_gets_its_own_back() -> None:
    backlog = _backlog(levels=2)
    urgent = batch_of([b"urgent"], Envelope(key="k", priority=1))
    for span in (_span(3), _span(2, urgent), _span(0), _span(1, urgent)):
        backlog.put_back(span)
    assert _bodies(backlog.take(9, 1 << 20)[0]) == [b"urgent", b"urgent", b"0", b"3"]


def test_what_was_split_and_comes_back_in_pieces_is_one_again() -> None:
    backlog = _backlog()
    whole = _span(0, batch_of([b"a", b"b", b"c", b"d"], Envelope(key="k")))
    pieces = [whole.split(1), whole.split(1), whole]
    for piece in pieces:
        backlog.put_back(piece)
    assert [len(span) for span in backlog.levels[0]] == [4]


@pytest.mark.parametrize("backwards", [False, True])
def test_messages_that_come_back_one_by_one_do_not_pass_each_other(
    backwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Counter[str]()
    first = Span.first.fget  # type: ignore[attr-defined]  # a property

    def counted(span: Span) -> int:
        looked["at positions"] += 1
        return first(span)  # type: ignore[no-any-return]

    monkeypatch.setattr(Span, "first", property(counted))
    backlog, count = _backlog(), 2000
    positions = range(count)
    for position in reversed(positions) if backwards else positions:
        backlog.put_back(_span(position))
        # The queue looks at its front once in a turn, and a turn may have one message.
        backlog.next_expiry()
    # Twice the logarithm, not half of all that came back before.
    assert looked["at positions"] < 60 * count
    assert backlog.count == count
