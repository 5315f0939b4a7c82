"""Role: what one channel of the client is for, and how it comes back after the server has closed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.hosting.backoff import Backoff
from plugins.protocols.amqp091.methods.method import Method

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session


class Role:
    """One channel.  The three subclasses declare, publish and consume."""

    def __init__(self, session: Session, channel: int, name: str) -> None:
        self.session = session
        self.channel = channel
        self.name = name
        """What it does, for reports: ``consuming from 'orders'``."""
        self.backoff = Backoff(session.options.reconnect)
        self.is_open = False
        """Whether the channel is."""
        self.up = False
        """Whether it does what it is for."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, channel {self.channel}, {'up' if self.up else 'down'}>"

    def start(self) -> None:
        """Open the channel, or go on with the one that is open."""
        if self.is_open:
            self.opened()
        else:
            self.session.connection.open_channel(self.channel)

    def send(self, method: Method) -> None:
        """Send on this channel."""
        self.session.connection.send_method(self.channel, method)

    def opened(self) -> None:
        """The channel is open: ask for what it is for."""

    def received(self, method: Method) -> None:
        """The server has sent a method on this channel."""

    def lost(self) -> None:
        """The channel has ended."""
        self.is_open = self.up = False
