"""Two connections back to back, as far as each test wants them to have come."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.events import Event, LoginRequested, OpenRequested
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions


class Pair:
    """A client and a server; ``exchange`` carries bytes to and fro until both are quiet."""

    def __init__(self, server: ServerOptions | None = None, client: ClientOptions | None = None) -> None:
        self.server = ServerConnection(server or ServerOptions(), 0.0)
        self.client = ClientConnection(client or ClientOptions(), 0.0)
        self.to_server: list[Event] = []
        self.to_client: list[Event] = []

    def exchange(self, now: float = 1.0) -> tuple[list[Event], list[Event]]:
        """Return the events of the server and of the client."""
        self.to_server, self.to_client = [], []
        while True:
            to_server = b"".join(self.client.data_to_send())
            for event in self.server.receive_data(to_server, now):
                self.to_server.append(event)
                if isinstance(event, LoginRequested):
                    self.server.accept_login()
                elif isinstance(event, OpenRequested):
                    self.server.accept_open()
            to_client = b"".join(self.server.data_to_send())
            self.to_client += self.client.receive_data(to_client, now)
            if not to_server and not to_client:
                return self.to_server, self.to_client


@pytest.fixture
def make_pair() -> Callable[..., Pair]:
    """Return the constructor of a pair that has said nothing yet."""
    return Pair


def opened() -> Pair:
    """Return a pair with channel 1 open."""
    pair = Pair()
    pair.exchange()
    pair.client.open_channel(1)
    pair.exchange()
    return pair


@pytest.fixture
def open_pair() -> Pair:
    """Return a pair with channel 1 open."""
    return opened()
