"""ChannelHandler: the base of what uses one channel of the client: Declarations, Publisher, Consumer.

A handler lives as long as the session.  Its channel may be opened several times: the server closes a channel
when it refuses something, and the session starts the handler again after a wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.hosting.backoff import Backoff
from plugins.protocols.amqp091.events import Acknowledged, Delivered, Rejected, Returned
from plugins.protocols.amqp091.methods.method import Method

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session


class ChannelHandler:
    """Uses one channel.  Subclasses override the methods for what they do."""

    def __init__(self, session: Session, channel: int, name: str) -> None:
        self.session = session
        self.channel = channel
        self.name = name
        """A description for reports: ``consuming from 'orders'``."""
        self.backoff = Backoff(session.link.options.reconnect)
        self.is_open = False
        """Whether the channel is open."""
        self.up = False
        """Whether it works: everything is declared, or publishing, or consuming has begun."""
        self.finished = False
        """Whether nothing is left to do.  The channel is then not opened again."""
        self.refusal = ""
        """Why the server has refused it; empty: it works, or has not been refused yet."""
        self.next_try: float | None = None
        """Seconds of the wait after which it is started again; None: it does not wait."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, channel {self.channel}, {'up' if self.up else 'down'}>"

    def start(self) -> None:
        """Open the channel; if it is open already, only call ``opened``."""
        self.next_try = None
        if self.is_open:
            self.opened()
        else:
            self.session.connection.open_channel(self.channel)

    def send(self, method: Method) -> None:
        """Send a method on this channel."""
        self.session.connection.send_method(self.channel, method)

    def works(self) -> None:
        """It works (again): reset the back-off, and forget why it was refused."""
        self.backoff.succeeded()
        self.refusal = ""

    def opened(self) -> None:
        """The channel is open."""

    def received(self, method: Method) -> None:
        """The server has sent a method without an event of its own."""

    def delivered(self, event: Delivered) -> None:
        """The server has delivered messages."""

    def has_acknowledged(self, tag: int) -> None:
        """This side has acknowledged all messages up to a delivery tag."""

    def acknowledged(self, event: Acknowledged) -> None:
        """The server has confirmed messages."""

    def rejected(self, event: Rejected) -> None:
        """The server has refused messages with basic.nack."""

    def returned(self, event: Returned) -> None:
        """The server returns messages that no queue got."""

    def refused(self, code: int) -> None:
        """The server has closed the channel with this reply code; ``lost`` follows."""

    def lost(self) -> None:
        """The channel has ended."""
        self.is_open = self.up = False
