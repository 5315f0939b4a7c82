"""Facts: what protocols can know about their connection (``Told``)."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Any

from kernel.contracts.protocol import ConnectionFacts
from kernel.hosting.wire import Wire


def facts_of(wire: Wire, peer: str, shared: dict[str, Any]) -> ConnectionFacts:
    """Return the facts of a connection, with a new seed.

    ``peer``: the peer's address, as operators see it.
    """
    connected = wire.connected
    certificate, subject = None, ""
    if isinstance(connected, ssl.SSLSocket):
        # The DER form is there for an unverified certificate as well, the decoded form is not.  So
        # ``subject`` is trustworthy and ``certificate`` alone is not.
        certificate, subject = connected.getpeercert(binary_form=True), subject_of(connected)
    return ConnectionFacts(
        peer=peer,
        local="" if connected is None else _local(connected),
        encrypted=isinstance(connected, ssl.SSLSocket),
        certificate=certificate,
        subject=subject,
        seed=int.from_bytes(os.urandom(16)),
        shared=shared,
    )


def _local(connected: socket.socket) -> str:
    try:
        name = connected.getsockname()
    except OSError:
        # The peer has reset the connection already.
        return ""
    if not isinstance(name, tuple):
        return str(name)
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"


def subject_of(connected: ssl.SSLSocket) -> str:
    """Return the common name in a verified certificate; empty if there is none, or more than one."""
    # Empty for a certificate that was not verified.
    parts: Any = (connected.getpeercert() or {}).get("subject", ())
    names = [value for part in parts for field, value in part if field == "commonName"]
    return names[0] if len(names) == 1 else ""
