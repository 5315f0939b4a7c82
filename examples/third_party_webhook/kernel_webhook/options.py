"""What can be set of a web hook."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from kernel.hosting.backoff import BackoffOptions


class WebhookOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Posts each message to an address."""

    url: str
    """``http://HOST:PORT/PATH`` or ``https://...``."""
    content_type: str = "application/octet-stream"
    """What the bodies are, for messages that do not say it themselves."""
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Seconds that one request may take to connect, and each part of its answer to come."""
    batch: Annotated[int, msgspec.Meta(ge=1)] = 100
    """How many messages are taken from the routes at a time, and confirmed together."""
    retry: BackoffOptions = BackoffOptions()
    """The waits between attempts while the server does not answer, or cannot accept messages."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: {self.url!r} is no address of http or https")
