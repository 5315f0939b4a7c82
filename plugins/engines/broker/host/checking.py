"""Checking: what a broker refuses of the properties of a message, whatever protocol brought them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel.contracts.message import Envelope
from plugins.engines.broker.arguments import LONGEST_TIME, type_name
from plugins.engines.broker.errors import PreconditionFailed


def check_properties(envelope: Envelope, user: str) -> None:
    """Refuse a message that ``user`` may not publish like this.  The texts are RabbitMQ's."""
    properties = envelope.properties
    # A consumer may rely on it: RabbitMQ's "validated user id".
    user_id = properties.get("user_id")
    if user_id is not None and user_id != user:
        raise PreconditionFailed(f"user_id property set to '{user_id}' but authenticated user was '{user}'")
    if envelope.expiration is not None and envelope.expiration > LONGEST_TIME:
        # With Erlang's terms, as RabbitMQ's message has them.
        text = f"invalid expiration '{envelope.expiration}': {{value_too_large,{envelope.expiration}}}"
        raise PreconditionFailed(text)
    _check_copies(properties.get("headers"))


def _check_copies(headers: Any) -> None:
    """Refuse CC and BCC that are no arrays."""
    if not isinstance(headers, Mapping):
        return
    for name in ("CC", "BCC"):
        if name in headers and not isinstance(headers[name], list):
            found = type_name(headers[name])
            raise PreconditionFailed(f'invalid message: {{unacceptable_type_in_header,"{name}",{found}}}')
