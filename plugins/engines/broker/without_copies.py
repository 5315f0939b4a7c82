"""Blind copies: the BCC header takes part in routing and must not reach a consumer."""

from __future__ import annotations

import msgspec

from kernel.contracts.message import Run
from plugins.engines.broker.dead_letters import headers_of


def hide_blind_copies(run: Run) -> Run:
    """Return the run under an envelope without the BCC header."""
    envelope = run.envelope
    headers = {name: value for name, value in headers_of(envelope).items() if name != "BCC"}
    properties = dict(envelope.properties) | {"headers": headers}
    return Run(run.bodies, run.size, msgspec.structs.replace(envelope, properties=properties), run.multipart)
