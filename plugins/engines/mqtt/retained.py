"""Retained messages: the last message of each topic that was published as one (MQTT 5.0, 3.3.1.3)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

import msgspec

from kernel.contracts.message import Batch, Buffer, Envelope
from plugins.engines.broker.public import Span, VirtualHost
from plugins.protocols.mqtt.topics import key_to_topic

_STORED_IN = "mqtt.retained"
STEP = 1000
"""Topics that are compared with a filter in one step: about half a millisecond."""
_PAGE = 1000
"""Topics of a page at the most."""
_FOUND = 5
"""As many of them take as long as one message that is found, and sent."""
_BYTES_A_TOPIC = 256
"""As many bytes of messages that are found count as one topic: what is sent in a step is bounded."""


class Retained(msgspec.Struct, gc=False):
    """A retained message."""

    topic: str
    batch: Batch
    expires_at: float | None
    number: int
    """Its number in the stored set."""

    @property
    def envelope(self) -> Envelope:
        """The envelope under which it was published."""
        return self.batch.envelope


class Step(msgspec.Struct):
    """How much may still be done in one step.  All who read retained messages of a broker share it."""

    left: int = STEP
    """Topics; to find one counts as several."""


class RetainedMessages:
    """The retained messages of one virtual host.

    They are in memory, and in the stored set ``mqtt.retained``.  A new message is kept there before the one
    that it replaces is dropped, so that a crash leaves one of them at least.
    """

    def __init__(self, vhost: VirtualHost, most: int) -> None:
        self._vhost = vhost
        self._most = most
        self._topics: dict[str, Retained] = {}
        self._pages = [_Page(0, {})]
        """All topics, in the order of the numbers of their messages; new ones are in the last page."""
        self.refused = 0
        """Messages that were not retained because there are too many topics."""

    def restore(self, now: float) -> None:
        """Read what the store has."""
        stored = self._vhost.stored_sets.get(_STORED_IN)
        for kept in () if stored is None else stored.messages():
            topic = key_to_topic(kept.envelope.key)
            self._replace(Retained(topic, _batch(kept.body, kept.envelope), kept.expires_at, kept.number))

    def __len__(self) -> int:
        return len(self._topics)

    def keep(self, topic: str, body: Buffer, envelope: Envelope, now: float) -> None:
        """Retain a message in place of the one that the topic has; an empty body removes that one."""
        if not body:
            self._remove(topic)
            return
        if topic not in self._topics and len(self._topics) >= self._most:
            self.refused += 1
            return
        expiration = envelope.expiration
        expires_at = None if expiration is None else now + expiration / 1000
        # A copy: the body may be a view of a whole read.
        batch = _batch(bytes(body), envelope)
        stored = self._vhost.stored_set(_STORED_IN)
        number = stored.next_number
        stored.keep(Span(number, batch, 0, 1, expires_at))
        self._replace(Retained(topic, batch, expires_at, number))

    def _replace(self, retained: Retained) -> None:
        before = self._topics.get(retained.topic)
        self._topics[retained.topic] = retained
        if before is not None:
            self._drop(before)
        last = self._pages[-1]
        if len(last.topics) >= _PAGE:
            last = _Page(retained.number, {})
            self._pages.append(last)
        last.topics[retained.topic] = None

    def _remove(self, topic: str) -> None:
        before = self._topics.pop(topic, None)
        if before is not None:
            self._drop(before)
            # Who has published the empty message is told that there is no other.
            self._vhost.store.demand()

    def _drop(self, retained: Retained) -> None:
        self._vhost.stored_set(_STORED_IN).drop(retained.number, retained.number + 1)
        pages = self._pages
        at = bisect_right(pages, retained.number, key=_FIRST) - 1
        page = pages[at]
        del page.topics[retained.topic]
        # Neighbours become one page when they are small.  A new one: who is reading the pages has these.
        if at and len(page.topics) + len(pages[at - 1].topics) <= _PAGE // 2:
            before = pages[at - 1]
            pages[at - 1 : at + 1] = [_Page(before.first, {**before.topics, **page.topics})]

    def find(self, topic_filter: str, now: float, step: Step | None = None) -> Iterator[Retained | None]:
        """Yield the messages whose topics a filter matches, in steps.

        None says that ``step`` is used up: looking at topics, and sending what was yielded, has taken so long
        that others should have their turn.  Topics may change meanwhile.
        """
        step = step or Step()
        if "+" not in topic_filter and "#" not in topic_filter:
            found = self._alive(topic_filter, now)
            step.left -= 1
            if found is not None:
                step.left -= _cost_of(found)
                yield found
            if step.left <= 0:
                yield None
            return
        matches = matcher_of(topic_filter)
        # The pages of this moment; each is copied when its turn has come.  To copy 100,000 topics would take
        # some milliseconds, because each is touched.  Of the last page, only what it has now: what comes
        # later is no retained message for this subscription.
        *pages, last = [page.topics for page in self._pages]
        pages.append(last.copy())
        for page in pages:
            for topic in list(page):
                step.left -= 1
                if matches(topic):
                    found = self._alive(topic, now)
                    if found is not None:
                        step.left -= _cost_of(found)
                        yield found
                if step.left <= 0:
                    yield None
                    # Who asks for more has begun another step, even if nobody has said so.
                    if step.left <= 0:
                        step.left = STEP

    def _alive(self, topic: str, now: float) -> Retained | None:
        retained = self._topics.get(topic)
        if retained is None:
            return None
        if retained.expires_at is not None and retained.expires_at <= now:
            self._remove(topic)
            return None
        return retained


class _Page(NamedTuple):
    """Some of the topics.  A topic moves to the last page when it gets another message."""

    first: int
    """No message of the page has a lower number."""
    topics: dict[str, None]


_FIRST = attrgetter("first")


def _cost_of(found: Retained) -> int:
    return _FOUND + found.batch.size // _BYTES_A_TOPIC


def _batch(body: Buffer, envelope: Envelope) -> Batch:
    """Return a batch of one message that the garbage collector need not look at.

    It looks at lists, but not at tuples of bytes: with a list in each of 100,000 retained messages, all
    clients would wait 35 ms longer for each full collection.
    """
    return Batch((body,), len(body), envelope, False, len(body))


def matcher_of(topic_filter: str) -> Callable[[str], object]:
    """Return what says whether a topic matches a filter (MQTT 5.0, 4.7), as a regular expression.

    A trie finds the filters that match a topic; here it is the other way round.
    """
    levels = topic_filter.split("/")
    last = levels[-1]
    parts = ["[^/]*" if level == "+" else re.escape(level) for level in levels if level != "#"]
    pattern = "/".join(parts)
    if last == "#":
        # ``sport/#`` matches ``sport`` as well [4.7.1.2].
        pattern = f"{pattern}(?:/.*)?" if parts else ".*"
    if levels[0] in ("+", "#"):
        pattern = rf"(?!\$){pattern}"
    return re.compile(pattern, re.DOTALL).fullmatch
