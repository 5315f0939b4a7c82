"""A WebSocket client over TLS for tests, with the package ``websockets``.

``websockets.sync.client`` reads in one thread and writes in another.  Over TLS both call OpenSSL with one object,
which OpenSSL forbids and Python locks only from 3.13 on.  About one request in 900 was never sent that way (the
server read nothing for ten seconds, and its socket held nothing).  The client for asyncio has one thread.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect


class SecureWebClient:
    """A client in the thread of its caller; ``secure_web_client`` makes it."""

    def __init__(self, runner: asyncio.Runner, wire: ClientConnection) -> None:
        self._runner = runner
        self._wire = wire

    def send(self, data: bytes) -> None:
        """Send a binary message."""
        self._runner.run(self._wire.send(data))

    def recv(self, seconds: float) -> bytes:
        """Return the next message; ``TimeoutError`` if none comes within ``seconds``."""
        message = self._runner.run(asyncio.wait_for(self._wire.recv(), seconds))
        assert isinstance(message, bytes)
        return message


@contextmanager
def secure_web_client(url: str, context: ssl.SSLContext, seconds: float) -> Iterator[SecureWebClient]:
    """Connect to ``url`` (``wss://``) within ``seconds``; close at the end."""

    async def open_it(**options: Any) -> ClientConnection:
        return await connect(url, **options)

    with asyncio.Runner() as runner:
        wire = runner.run(open_it(ssl=context, proxy=None, open_timeout=seconds))
        try:
            yield SecureWebClient(runner, wire)
        finally:
            runner.run(wire.close())
