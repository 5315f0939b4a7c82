"""PUB, SUB, XPUB and XSUB: each message goes to every peer that has subscribed to its beginning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from kernel.contracts.message import Batch, Buffer, Envelope, batch_of_one
from plugins.apis.sockets.end import End, PublishingEnd
from plugins.apis.sockets.errors import NotSupported, SocketError
from plugins.apis.sockets.options import Values
from plugins.apis.sockets.patterns.base import Pattern, ReceivingPattern, batch_of_parts
from plugins.apis.sockets.patterns.manual_subscriptions import ManualSubscriptions

_SUBSCRIBE, _CANCEL = b"\1", b"\0"


class Pub(Pattern):
    """PUB.  What finds the pipe of a peer full is dropped for this peer, and counted."""

    kind: ClassVar[str] = "PUB"
    takes: ClassVar[bool] = False
    publishes: ClassVar[bool] = True
    router: str = "by-prefix"
    when_full: str = "drop-newest"

    def __init__(self, end: End, values: Values, engine: str) -> None:
        super().__init__(end, values, engine)
        self._waits = False
        """Whether a message waits for a subscriber that has no room."""

    def engine_options(self) -> Mapping[str, Any]:
        """Return that nobody needs to look at what the router has chosen.

        See what a slow subscriber does.
        """
        self._waits = self.values["xpub_nodrop"]
        if self._waits:
            self.when_full = "block"
        if self.values["invert_matching"]:
            # Conversations know who has not subscribed.
            self.router = "fan-out"
            return {"invert_matching": True}
        # Who waits for single peers, or keeps one message for each, has to see their pipes.
        self.relayed = not (self._waits or self.values["conflate"])
        return {"chosen_by_route": True}

    def may_send(self) -> bool:
        """Return True, if a publisher never waits."""
        return not self._waits or super().may_send()

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Send messages; those without subscribers are dropped."""
        if self._waits:
            super().send_batch(batch, timeout)
            return
        self._publish(batch)

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Send one message."""
        if self._waits:
            super().send_parts(parts, timeout)
            return
        self._publish(batch_of_parts(parts))

    def _publish(self, batch: Batch) -> None:
        assert isinstance(self.end, PublishingEnd)
        self.end.publish(batch)

    def before_receiving(self) -> None:
        """Refuse: nothing comes."""
        raise NotSupported("PUB does not receive; XPUB does")

    def subscribers(self, topic: bytes | None) -> int:
        """Return how many peers have subscribed."""
        assert isinstance(self.end, PublishingEnd)
        return self.end.subscribers(topic)

    def topics(self) -> int:
        """Return to how many prefixes peers have subscribed."""
        assert isinstance(self.end, PublishingEnd)
        return len(self.end.wanted)


class Xpub(Pub):
    """XPUB: as PUB, and subscriptions are messages: 1 or 0, and the prefix."""

    kind: ClassVar[str] = "XPUB"
    takes: ClassVar[bool] = True

    def __init__(self, end: End, values: Values, engine: str) -> None:
        super().__init__(end, values, engine)
        assert isinstance(end, PublishingEnd)
        end.on_subscription = self._on_subscription
        self._manual: ManualSubscriptions | None = None
        """Who gets what, if the application decides on it."""

    def engine_options(self) -> Mapping[str, Any]:
        """See who decides on subscriptions."""
        options = {**super().engine_options(), "only_first_subscribe": self.values["only_first_subscribe"]}
        last_value = self.values["xpub_manual_last_value"]
        if last_value or self.values["xpub_manual"]:
            if self.values["invert_matching"]:
                raise SocketError("xpub_manual and invert_matching do not go together")
            self.router = "reply"
            self.relayed = False
            self._manual = ManualSubscriptions(self.end, last_value=last_value)
        return options

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Send one message."""
        if self._manual is None:
            super().send_parts(parts, timeout)
        else:
            self._manual.send(parts, timeout, waits=self._waits)

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Send messages; those without subscribers are dropped."""
        if self._manual is None:
            super().send_batch(batch, timeout)
            return
        for body in batch.bodies:
            self._manual.send(body if batch.multipart else (body,), timeout, waits=self._waits)

    def may_send(self) -> bool:
        """Whether nobody is waited for; with ``xpub_manual`` that is seen when a message is sent."""
        return self._manual is not None or super().may_send()

    def received(self, envelope: Envelope) -> None:
        """Take notice of whose subscription the application has received."""
        if self._manual is not None and envelope.reply_to:
            self._manual.heard(envelope.reply_to)

    def subscribe(self, prefix: bytes) -> None:
        """Let the peer whose subscription was received last have messages that begin with ``prefix``."""
        self._decisions().add(prefix)

    def unsubscribe(self, prefix: bytes) -> None:
        """Take back what ``subscribe`` has done for the peer that has asked last."""
        self._decisions().remove(prefix)

    def _decisions(self) -> ManualSubscriptions:
        self.end.look()
        if self._manual is None:
            raise NotSupported(
                "XPUB subscribes its peers only with xpub_manual, which is set before the first place"
            )
        return self._manual

    def subscribers(self, topic: bytes | None) -> int:
        """Return how many peers have subscribed."""
        return super().subscribers(topic) if self._manual is None else self._manual.count(topic)

    def topics(self) -> int:
        """Return to how many prefixes peers have subscribed, or the application has subscribed them."""
        return super().topics() if self._manual is None else self._manual.topics()

    def _on_subscription(self, verb: str, prefix: bytes, news: bool, peer: str) -> None:
        values = self.values
        if self._manual is not None:
            # Each one is for the application, whose decision is about this peer.
            told = (_SUBSCRIBE if verb == "subscribe" else _CANCEL) + prefix
            self.end.inbox.append(batch_of_one(told, Envelope(reply_to=peer)))
        elif verb == "subscribe" and (news or values["xpub_verbose"] or values["xpub_verboser"]):
            self.end.inbox.append(batch_of_one(_SUBSCRIBE + prefix))
        elif verb == "unsubscribe" and (news or values["xpub_verboser"]):
            self.end.inbox.append(batch_of_one(_CANCEL + prefix))

    def before_receiving(self) -> None:
        """Receive at any time."""


class Subscriber(Pattern):
    """What SUB, XSUB and DISH have: subscriptions, which are counted."""

    def __init__(self, end: End, values: Values, engine: str) -> None:
        super().__init__(end, values, engine)
        self._prefixes: Counter[bytes] = Counter()

    def subscribe(self, prefix: bytes) -> None:
        """Ask for messages that begin with ``prefix``."""
        self.end.look()
        self._prefixes[prefix] += 1
        if self._prefixes[prefix] == 1:
            self.end.port.subscribe(_pattern(prefix))

    def unsubscribe(self, prefix: bytes) -> None:
        """Take back one subscription; does nothing if there is none."""
        self.end.look()
        if self._prefixes[prefix]:
            self._prefixes[prefix] -= 1
            if not self._prefixes[prefix]:
                # Not kept at 0: topics come and go.
                del self._prefixes[prefix]
                self.end.port.unsubscribe(_pattern(prefix))

    def topics(self) -> int:
        """Return how many prefixes this side has subscribed to."""
        return len(self._prefixes)


class Sub(ReceivingPattern, Subscriber):
    """SUB."""

    kind: ClassVar[str] = "SUB"
    instead: ClassVar[str] = "PUB and XSUB do"

    def engine_options(self) -> Mapping[str, Any]:
        """Say whether it gets what it has not subscribed to."""
        return {"invert_matching": self.values["invert_matching"]}


class Xsub(Subscriber):
    """XSUB: as SUB, and a message that begins with 1 or 0 subscribes, or takes it back."""

    kind: ClassVar[str] = "XSUB"
    when_full: str = "drop-newest"
    alike: ClassVar[bool] = False

    def __init__(self, end: End, values: Values, engine: str) -> None:
        super().__init__(end, values, engine)
        self._taken_back: set[bytes] = set()
        """Prefixes that peers were told to forget, although not all subscriptions to them were taken back."""

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Subscribe, unsubscribe, or send a message to all publishers."""
        # As libzmq: a first part that subscribes has those behind it looked at in any case.
        if self._is_subscription(parts[0]):
            parts = tuple(part for part in parts[1:] if not self._is_subscription(part))
        elif not self.values["only_first_subscribe"]:
            parts = (parts[0], *(part for part in parts[1:] if not self._is_subscription(part)))
        if parts:
            Pattern.send_parts(self, parts, 0)

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Do so with each message."""
        for body in batch.bodies:
            self.send_parts(body if batch.multipart else (body,), timeout)

    def may_send(self) -> bool:
        """Return True: an XSUB never waits."""
        return True

    def subscribe(self, prefix: bytes) -> None:
        """Ask for messages that begin with ``prefix``; ask again if peers were told to forget it."""
        super().subscribe(prefix)
        if prefix in self._taken_back:
            self._taken_back.remove(prefix)
            if self._prefixes[prefix] > 1:
                self.end.port.subscribe(_pattern(prefix))

    def unsubscribe(self, prefix: bytes) -> None:
        """Take back one subscription; with ``xsub_verbose_unsubscribe`` tell peers of the first one already.

        For a peer subscriptions are a set, so it changes nothing to tell the others as well.
        """
        count = self._prefixes[prefix]
        super().unsubscribe(prefix)
        if count > 1 and self.values["xsub_verbose_unsubscribe"] and prefix not in self._taken_back:
            self._taken_back.add(prefix)
            self.end.port.unsubscribe(_pattern(prefix))
        elif count == 1:
            # A port that is not subscribed any more has ignored the call of ``super``.
            self._taken_back.discard(prefix)

    def _is_subscription(self, body: Any) -> bool:
        verb, prefix = bytes(body[:1]), bytes(body[1:])
        if verb == _SUBSCRIBE:
            self.subscribe(prefix)
        elif verb == _CANCEL:
            self.unsubscribe(prefix)
        return verb in (_SUBSCRIBE, _CANCEL)


def _pattern(prefix: bytes) -> str:
    # Octets that are not text become lone surrogates, which the conversation turns back.
    return "prefix:" + prefix.decode("utf-8", "surrogateescape")
