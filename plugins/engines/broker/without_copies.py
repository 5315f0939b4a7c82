"""Blind copies: the BCC header takes part in routing and must not reach a consumer."""

from __future__ import annotations

import msgspec

from kernel.contracts.message import Envelope
from plugins.engines.broker.dead_letters import headers_of


def without_blind_copies(envelope: Envelope) -> Envelope | None:
    """Return the envelope without the BCC header; None if it has none."""
    headers = headers_of(envelope)
    if "BCC" not in headers:
        return None
    kept = {name: value for name, value in headers.items() if name != "BCC"}
    return msgspec.structs.replace(envelope, properties=dict(envelope.properties) | {"headers": kept})
