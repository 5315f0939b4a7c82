"""The HTTP client: a persistent connection.  It blocks, so it runs in a worker thread, one at a time."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

from kernel.contracts.message import Message
from kernel_webhook.options import WebhookOptions

LATER = {408, 425, 429}
"""Answers below 500 that mean "not now": time-out, too early, too many requests."""


class Poster:
    """Posts messages one after the other."""

    def __init__(self, options: WebhookOptions) -> None:
        parts = urlsplit(options.url)
        make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        assert parts.hostname is not None
        self._connection = make(parts.hostname, parts.port, timeout=options.timeout)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._content_type = options.content_type
        self._stopped = False
        self._posting = threading.Lock()

    def post(self, messages: Sequence[Message]) -> tuple[list[str | None], str]:
        """Post messages until the server accepts no more; return the results, and why it ended.

        The result of an answered message is None if the server has accepted it, else the reason of the
        refusal.  The second value is empty if all messages were answered.
        """
        with self._posting:
            answer = self._post_all(messages)
            if self._stopped:
                self._connection.close()
            return answer

    def _post_all(self, messages: Sequence[Message]) -> tuple[list[str | None], str]:
        done: list[str | None] = []
        for message in messages:
            try:
                status, reason = self._post(message)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                return done, f"{type(error).__name__}: {error}"
            if status >= 500 or status in LATER:
                return done, f"{status} {reason}"
            done.append(None if 200 <= status < 300 else f"{status} {reason}")
        return done, ""

    def _post(self, message: Message) -> tuple[int, str]:
        if self._stopped:
            raise OSError("the engine is shut down")
        content_type = str(message.envelope.properties.get("content_type") or self._content_type)
        headers = {
            "Content-Type": content_type if content_type.isprintable() else self._content_type,
            "X-Message-Key": quote(message.key, safe="/:@!$*,;="),
        }
        self._connection.request("POST", self._path, bytes(message.body), headers)
        response = self._connection.getresponse()
        response.read()
        return response.status, response.reason

    def stop(self) -> None:
        """Have ``post`` end soon, which closes the connection; without one, close it here.  Any thread."""
        self._stopped = True
        if self._posting.acquire(blocking=False):
            self._connection.close()
            self._posting.release()
            return
        connected = self._connection.sock
        if connected is not None:
            try:
                connected.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already
