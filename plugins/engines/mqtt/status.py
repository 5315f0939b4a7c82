"""Status: what the broker tells of itself under ``$SYS/broker/``, with the names that mosquitto has for it.

The messages go to the live subscriptions directly, past all exchanges and queues.  They are published every
``status_seconds`` while somebody has subscribed to topics that begin with ``$SYS``.  A new subscription gets
the present values at once, as retained messages.

Version and uptime are the broker's.  All else is of the subscriber's virtual host alone: who uses one must
not see what goes on in another.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from kernel.contracts.message import Batch, Envelope, batch_of_one
from plugins.engines.broker.public import BrokerEngine, Timer, VirtualHost
from plugins.engines.mqtt.retained import Retained, matcher_of
from plugins.protocols.mqtt.topics import STATUS, is_status, topic_to_key

if TYPE_CHECKING:
    from plugins.engines.mqtt.sessions import Sessions

_PREFIX = f"{STATUS}/broker/"
_FRESH = 1.0
"""Seconds for which values are shown to new subscriptions: to count takes a step for each session and each
subscription of the virtual host, and a client may subscribe thousands of times."""


class Status:
    """The status of one broker."""

    def __init__(self, engine: BrokerEngine, sessions: Sessions, period: float) -> None:
        """``period``: seconds between two messages of a topic; 0: there are none."""
        self._engine = engine
        self._sessions = sessions
        self._period = period
        self._started: float | None = None
        self._timer: Timer | None = None
        # The same envelope each time: who gets its messages is looked up once.
        self._envelopes: dict[str, Envelope] = {}
        self._latest: dict[str, tuple[float, list[tuple[str, Batch]]]] = {}
        """By virtual host, when its values were found, and these."""

    def begin(self) -> None:
        """The broker runs from now on."""
        if self._started is None:
            self._started = self._engine.host.now()

    def watch(self) -> None:
        """Somebody has subscribed: publish from now on."""
        if not self._period:
            return
        if self._timer is None:
            self._timer = Timer(self._engine.broker, self._on_time)
        # Not set anew by each subscriber: many of them would put the next message off for ever.
        if self._timer.called_at is None:
            self._timer.set(self._engine.host.now() + self._period)

    def _on_time(self, now: float) -> None:
        watched = [live for live in self._sessions.live_subscriptions() if live.watchers]
        # Nobody is left; the next who subscribes sets the timer.
        if not watched:
            assert self._timer is not None, "it has called"
            self._timer.cancel()
            return
        for vhost in {live.vhost.name: live.vhost for live in watched}.values():
            messages = self._messages(vhost, now)
            for live in watched:
                if live.vhost is vhost:
                    for _, batch in messages:
                        live.publish(batch, now)
        assert self._timer is not None, "it has called"
        self._timer.set(now + self._period)

    def find(self, vhost: VirtualHost, topic_filter: str, now: float) -> Iterator[Retained]:
        """Yield the present values that a new subscription gets."""
        if not self._period or not is_status(topic_filter):
            return
        matches = matcher_of(topic_filter)
        found, messages = self._latest.get(vhost.name, (-_FRESH, []))
        if now - found >= _FRESH:
            messages = self._messages(vhost, now)
        for topic, batch in messages:
            if matches(topic):
                yield Retained(topic, batch, None, 0)

    def _messages(self, vhost: VirtualHost, now: float) -> list[tuple[str, Batch]]:
        messages: list[tuple[str, Batch]] = []
        for name, value in self._values(vhost, now).items():
            topic = f"{_PREFIX}{name}"
            envelope = self._envelopes.get(topic)
            if envelope is None:
                envelope = self._envelopes[topic] = Envelope(key=topic_to_key(topic))
            messages.append((topic, batch_of_one(str(value).encode(), envelope)))
        self._latest[vhost.name] = now, messages
        return messages

    def _values(self, vhost: VirtualHost, now: float) -> dict[str, int | str]:
        counts = self._sessions.counts(vhost)
        queues = vhost.queues.values()
        stored = sum(queue.backlog.count for queue in queues)
        received, sent = counts["messages_in"], counts["messages_out"]
        return {
            "version": f"messaging-kernel version {_version()}",
            "uptime": f"{int(now - (self._started or 0.0))} seconds",
            "clients/total": counts["connected"] + counts["disconnected"],
            "clients/connected": counts["connected"],
            "clients/disconnected": counts["disconnected"],
            "bytes/received": counts["bytes_in"],
            "bytes/sent": counts["bytes_out"],
            "messages/received": received,
            "messages/sent": sent,
            "messages/stored": stored,
            "publish/messages/received": received,
            "publish/messages/sent": sent,
            "publish/messages/dropped": counts["dropped"],
            "store/messages/count": stored,
            "store/messages/bytes": sum(queue.backlog.size for queue in queues),
            "subscriptions/count": counts["subscriptions"],
            "shared_subscriptions/count": counts["shared"],
            "retained messages/count": counts["retained"],
        }


@cache
def _version() -> str:
    try:
        return metadata.version("messaging-kernel")
    except metadata.PackageNotFoundError:
        # Run from a source tree that is not installed.
        return "unknown"
