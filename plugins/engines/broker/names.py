"""Names that the broker chooses: with 128 random bits, so that no two of them are equal."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from random import Random


def invent_name(prefix: str, random: Random) -> str:
    """Return ``prefix`` and 22 random characters, as RabbitMQ does (``amq.gen-JzTY20BRgKO-HjmUJj0wLg``)."""
    return prefix + urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()
