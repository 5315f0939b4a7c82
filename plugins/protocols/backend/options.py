"""Options of the backend protocol."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Size = Annotated[int, msgspec.Meta(ge=1, le=(1 << 56) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class BackendOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The backend protocol: messages as size and body, and an extension that both sides negotiate."""

    format: Literal["auto", "extended", "0.x"] = "auto"
    """``0.x``: the old format, without the extension.  ``extended``: the extension is required.  ``auto``: a
    dialler uses the extension; a listener serves both (a dialler that does not greet is served in the old
    format)."""
    max_message: Size = 256 * 1024 * 1024
    """Bytes of the largest message that is accepted from the peer."""
    heartbeat: Seconds = 10.0
    """Seconds without sending anything after which a PING is sent.  The peer gives this side up after three
    times as long without hearing from it.  0: no heartbeats."""
    handshake: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Seconds in which a peer that uses the extension must greet."""
    recognition: Seconds = 0.25
    """Seconds that a listener waits for the first bytes; a dialler that is silent for longer gets the old
    format."""
    envelopes: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 1024
    """Envelopes that are remembered for the peer at most."""
    envelope_bytes: Size = 4 * 1024 * 1024
    """Bytes of these envelopes together, as they are encoded on the wire."""
    max_subscriptions: Annotated[int, msgspec.Meta(ge=0)] = 16384
    """Subscriptions that the peer may have at a time."""
    subscription_bytes: Annotated[int, msgspec.Meta(ge=0)] = 1024 * 1024
    """Bytes of the patterns of these subscriptions together."""
    subscriptions: tuple[str, ...] = ()
    """Patterns to subscribe to at the peer after connecting.  Routes there need ``router = "by-key"``."""
