"""Effect: finds out when the subscriptions of a port are in effect at its sources.

A port has two parts in this, one for each direction of its messages
(docs/decisions/0022-subscriptions-travel.md).

* As a reader it asks the writers of its pipes (``Effect``).  The question is posted behind the subscriptions,
  so a writer answers it when it has applied them.
* As a writer it is asked by the readers of its pipes (``PeerAnswers``).  It answers at once, unless its owner
  has passed the subscriptions on to a peer.  Then it answers when the peer has.

Hops
    A question has a number of hops: the connections that it may still cross.  Each connection takes one away,
    and without hops no peer is asked.  So a question that comes round a ring of kernels ends.  A question
    only waits for questions with fewer hops, so none can wait for itself.

Rounds
    Questions with one number of hops are asked together: the first begins a round, and later ones join it.
    Who asks after another subscription waits for the next round, since the one under way may have passed the
    source before that subscription did.  So at most one question for each number of hops is on its way
    through a pipe, and to a peer, however many are asked.

Invariants
    A pipe that has ended is not waited for.  ``Effect._next`` has a number of hops only while ``_rounds``
    has.  A pipe is at most once in a level of ``PeerAnswers``, because its reader has one round for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kernel.contracts.engine import HOPS
from kernel.pipes.pipe import Pipe

Then = Callable[[], Any]


class _Round:
    """A question that is on its way to the writers of several pipes."""

    __slots__ = ("awaited", "stale", "thens")

    def __init__(self, awaited: set[Pipe], thens: list[Then]) -> None:
        self.awaited = awaited
        self.thens = thens
        self.stale = False
        """Whether the port has subscribed since: the answer does not include that subscription."""

    def over(self) -> bool:
        """Whether nobody is left who could answer."""
        return all(pipe.ended for pipe in self.awaited)


class Effect:
    """The questions of one port to the writers of its pipes.  The thread of the port."""

    __slots__ = ("_next", "_pipes", "_rounds")

    def __init__(self, pipes: Callable[[], Iterable[Pipe]]) -> None:
        self._pipes = pipes
        self._rounds: dict[int, _Round] = {}
        self._next: dict[int, list[Then]] = {}

    def ask(self, hops: int, then: Then) -> bool:
        """Call ``then`` later and return False, or return True if all is in effect already."""
        under_way = self._rounds.get(hops)
        if under_way is None:
            return self._begin(hops, [then])
        if under_way.stale:
            self._next.setdefault(hops, []).append(then)
        else:
            under_way.thens.append(then)
        return False

    def asking(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._rounds)

    def subscribed(self) -> None:
        """The port has one more subscription."""
        for under_way in self._rounds.values():
            under_way.stale = True

    def look(self, hops: int) -> None:
        """End the round of this number of hops, if all writers that have not answered have gone."""
        under_way = self._rounds.get(hops)
        if under_way is not None and under_way.over():
            self._end(hops, under_way)

    def forget(self, pipe: Pipe) -> None:
        """A writer has gone."""
        # A copy: the end of a round may begin the next one.
        for hops, under_way in list(self._rounds.items()):
            if pipe in under_way.awaited:
                self._answered(hops, under_way, pipe)

    def cancel(self, keep: Then) -> None:
        """Forget who asked, except ``keep``: the conversation that asked is over."""
        for under_way in self._rounds.values():
            under_way.thens = [then for then in under_way.thens if then == keep]
        for thens in self._next.values():
            thens[:] = [then for then in thens if then == keep]

    def _begin(self, hops: int, thens: list[Then]) -> bool:
        awaited = {pipe for pipe in self._pipes() if not pipe.ended and _has_to_answer(pipe, hops)}
        if not awaited:
            return True
        under_way = self._rounds[hops] = _Round(awaited, thens)
        for pipe in awaited:
            pipe.ask_effect(hops, partial(self._answered, hops, under_way, pipe))
        return False

    def _answered(self, hops: int, under_way: _Round, pipe: Pipe) -> None:
        under_way.awaited.discard(pipe)
        # Not the same: the round has ended without this answer, when its other writers had gone.
        if self._rounds.get(hops) is under_way and under_way.over():
            self._end(hops, under_way)

    def _end(self, hops: int, under_way: _Round) -> None:
        del self._rounds[hops]
        following = self._next.pop(hops, [])
        # Before the calls below, each of which may ask again: those who ask now join this round.
        at_once = bool(following) and self._begin(hops, following)
        for then in under_way.thens + (following if at_once else []):
            then()


def _has_to_answer(pipe: Pipe, hops: int) -> bool:
    # An application's thread processes its mailbox at the beginning of each call.  So what was posted to it
    # applies to all messages that it sends later, and a peer need not wait for its next call, which may come
    # in an hour.  Only a question of this kernel, which no connection has taken a hop from, waits for it.
    return hops == HOPS or not pipe.called


class _Level:
    """The readers that wait for one answer of the peer."""

    __slots__ = ("following", "stale", "waiting")

    def __init__(self, waiting: dict[Pipe, Then]) -> None:
        self.waiting = waiting
        self.following: dict[Pipe, Then] = {}
        """Who asked after ``stale`` was set."""
        self.stale = False
        """Whether the peer was asked for another pattern after this question."""


class PeerAnswers:
    """The questions of readers that the peer of a port's owner has to answer.  The thread of the port."""

    __slots__ = ("_ask_peer", "_levels")

    def __init__(self, owner: object) -> None:
        # Looked up once, when the port opens.  Owners without peers have no such method.
        self._ask_peer: Callable[[int], Any] | None = getattr(owner, "on_sync", None)
        self._levels: dict[int, _Level] = {}

    def ask(self, pipe: Pipe, hops: int, answer: Then) -> None:
        """A reader asks; call ``answer`` when the peer has answered, or at once."""
        if self._ask_peer is None or not hops:
            answer()
            return
        level = self._levels.get(hops)
        if level is None:
            # Before the call: the owner may answer inside it.
            self._levels[hops] = _Level({pipe: answer})
            self._ask_peer(hops)
        elif level.stale:
            level.following[pipe] = answer
        else:
            level.waiting[pipe] = answer

    def passed_on(self) -> None:
        """The owner has subscribed to one more pattern at its peer."""
        for level in self._levels.values():
            level.stale = True

    def open(self) -> list[int]:
        """Return the numbers of hops for which the peer has not answered."""
        return list(self._levels)

    def answered(self, hops: int) -> None:
        """The peer has answered, or cannot answer."""
        level = self._levels.pop(hops, None)
        if level is None:
            return
        if level.following and self._ask_peer is not None:
            self._levels[hops] = _Level(level.following)
            self._ask_peer(hops)
        for answer in level.waiting.values():
            answer()

    def forget_owner(self) -> None:
        """The port has left: nobody asks a peer any more."""
        self._ask_peer = None

    def forget(self, pipe: Pipe) -> None:
        """A reader has gone."""
        for level in self._levels.values():
            level.waiting.pop(pipe, None)
            level.following.pop(pipe, None)
