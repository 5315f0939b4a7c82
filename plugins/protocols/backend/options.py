"""What can be set of the backend protocol."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Size = Annotated[int, msgspec.Meta(ge=1, le=(1 << 56) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class BackendOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The backend protocol: size and body, and an extension that is negotiated."""

    format: Literal["auto", "extended", "0.x"] = "auto"
    """``0.x``: bare sizes and bodies; ``extended``: insist on the extension; ``auto``: offer it when dialling,
    and as a listener serve both (a dialler that does not greet is served in the old format)."""
    max_message: Size = 256 * 1024 * 1024
    """The largest message, in bytes, that is accepted from the peer."""
    heartbeat: Seconds = 10.0
    """Seconds of silence after which a sign of life is sent; a peer silent for three times as long is given up.
    0: no heartbeats."""
    handshake: Seconds = 10.0
    """Seconds that a peer of the extension may take to greet."""
    recognition: Seconds = 0.25
    """Seconds that a listener waits for a greeting before it takes a silent dialler for one of the old format."""
    envelopes: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 1024
    """How many envelopes the peer may have us remember."""
    envelope_bytes: Size = 4 * 1024 * 1024
    """How many bytes these envelopes may have together, as they travel."""
    max_subscriptions: Annotated[int, msgspec.Meta(ge=0)] = 16384
    """How many subscriptions the peer may have at a time."""
    subscription_bytes: Annotated[int, msgspec.Meta(ge=0)] = 1024 * 1024
    """How many bytes the patterns of these may have together."""
    subscriptions: tuple[str, ...] = ()
    """Patterns that are subscribed to at the peer once connected (routes there need ``router = "by-key"``)."""
