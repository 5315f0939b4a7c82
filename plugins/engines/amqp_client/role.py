"""Role: what one channel of the client is for, and how it comes back after the server has closed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.hosting.backoff import Backoff
from plugins.protocols.amqp091.events import Acknowledged, Delivered, Rejected, Returned
from plugins.protocols.amqp091.methods.method import Method

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session


class Role:
    """One channel.  The subclasses declare, publish and consume."""

    def __init__(self, session: Session, channel: int, name: str) -> None:
        self.session = session
        self.channel = channel
        self.name = name
        """What it does, for reports: ``consuming from 'orders'``."""
        self.backoff = Backoff(session.link.options.reconnect)
        self.is_open = False
        """Whether the channel is."""
        self.up = False
        """Whether it does what it is for."""
        self.finished = False
        """Whether there is nothing left to do: a channel that closes then is not opened again."""
        self.refusal = ""
        """Why the server has refused it, until it works again."""
        self.next_try: float | None = None
        """Seconds that are waited before it is tried again, while they are."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, channel {self.channel}, {'up' if self.up else 'down'}>"

    def start(self) -> None:
        """Open the channel, or go on with the one that is open."""
        self.next_try = None
        if self.is_open:
            self.opened()
        else:
            self.session.connection.open_channel(self.channel)

    def send(self, method: Method) -> None:
        """Send on this channel."""
        self.session.connection.send_method(self.channel, method)

    def works(self) -> None:
        """It does what it is for: whatever was wrong is over."""
        self.backoff.succeeded()
        self.refusal = ""

    def opened(self) -> None:
        """The channel is open: ask for what it is for."""

    def received(self, method: Method) -> None:
        """The server has sent a method on this channel."""

    def delivered(self, event: Delivered) -> None:
        """Messages have come."""

    def has_acknowledged(self, tag: int) -> None:
        """This side has acknowledged all up to a delivery tag."""

    def acknowledged(self, event: Acknowledged) -> None:
        """The server answers for messages."""

    def rejected(self, event: Rejected) -> None:
        """The server does not take messages."""

    def returned(self, event: Returned) -> None:
        """No queue wanted a message."""

    def refused(self, code: int) -> None:
        """The server has closed the channel with this reply code; ``lost`` follows."""

    def lost(self) -> None:
        """The channel has ended."""
        self.is_open = self.up = False
