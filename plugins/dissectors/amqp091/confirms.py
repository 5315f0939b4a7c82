"""Acknowledgements: how many, and how long a publisher had to wait for them."""

from __future__ import annotations

from kernel.contracts.dissector import SERVER
from kernel.inspection.awaited import Awaited
from kernel.inspection.durations import Durations
from plugins.protocols.amqp091.methods.method import Method

_ANSWERS = ("basic.ack", "basic.nack", "basic.reject")


class _Publisher:
    """A channel in confirm mode; its messages are counted from 1."""

    def __init__(self, durations: Durations) -> None:
        self.count = 0
        self.awaited = Awaited(durations)


class Confirms:
    """Those of a connection."""

    def __init__(self) -> None:
        self.acks = 0
        """Acknowledgements and refusals, of either side."""
        self.durations = Durations()
        """From the end of a message to its confirm."""
        self._channels: dict[int, _Publisher] = {}

    def forget(self) -> None:
        """Something was missed: nobody knows what a confirm counts."""
        self._channels.clear()

    def see(self, sender: int, channel: int, method: Method, time: float) -> None:
        """Take any method."""
        name = method.name
        if name == "confirm.select":  # what comes before its answer is counted already, and there may be none
            self._channels.setdefault(channel, _Publisher(self.durations))
        elif name in ("channel.close", "channel.close-ok"):
            self._channels.pop(channel, None)
        elif name in _ANSWERS:
            self.acks += 1
            publisher = self._channels.get(channel)
            if publisher is not None and sender == SERVER:
                tag = method.delivery_tag  # type: ignore[attr-defined]
                if getattr(method, "multiple", False):
                    publisher.awaited.answered_up_to(tag, time)
                else:
                    publisher.awaited.answered(tag, time)

    def published(self, channel: int, time: float) -> None:
        """Take notice of a whole message."""
        publisher = self._channels.get(channel)
        if publisher is not None:
            publisher.count += 1
            publisher.awaited.sent(publisher.count, time)
