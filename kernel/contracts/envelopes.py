"""Checks that what an application gives as a key, a pattern, a name or an envelope can be used.

They are made in the thread of the application, so that the call raises.  An engine that met the same mistake
would drop the message, or end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kernel.contracts.message import PLAIN, Envelope

_TEXTS = ("key", "exchange", "reply_to")


def checked_text(value: Any, what: str) -> str:
    """Return a text as a plain one; ``TypeError`` if it is none, with ``what`` it should be."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        # A member of an enumeration, for example. Codecs accept no subclass.
        return str.__str__(value)
    raise TypeError(f"{what} is text, not {type(value).__name__}")


def envelope_with(key: str | None, headers: Mapping[str, Any] | None) -> Envelope:
    """Return a new envelope with a key and headers, where there are any; ``PLAIN`` without both."""
    if key is not None:
        key = checked_text(key, "a key")
    if not headers:
        return PLAIN if key is None else Envelope(key=key)
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers are a dictionary, such as {{'attempt': 1}}, not {headers!r:.80}")
    # A copy: the envelope may be on its way when the application changes its headers for the next message.
    return Envelope(key=key or "", properties={"headers": dict(headers)})


def checked_envelope(given: Any) -> Envelope:
    """Return an envelope all of whose fields have the types that they should have, or raise ``TypeError``."""
    if type(given) is not Envelope:
        raise TypeError(
            f"an envelope is a kernel.Envelope, such as Envelope(key='weather'), not {type(given).__name__}"
        )
    envelope: Envelope = given
    if not type(envelope.key) is type(envelope.exchange) is type(envelope.reply_to) is str:
        texts = {name: checked_text(getattr(envelope, name), f"an envelope's {name}") for name in _TEXTS}
        envelope = msgspec.structs.replace(envelope, **texts)
    if type(envelope.persistent) is not bool:
        raise TypeError(f"an envelope's persistent is True or False, not {envelope.persistent!r}")
    if type(envelope.priority) is not int:
        raise TypeError(f"an envelope's priority is a whole number, not {envelope.priority!r}")
    if envelope.expiration is not None and type(envelope.expiration) is not int:
        raise TypeError(
            f"an envelope's expiration is a whole number of milliseconds, not {envelope.expiration!r}"
        )
    properties = envelope.properties
    # Most have none, or a dictionary: to ask for the abstract class takes longer than all the rest.
    if (
        properties is not PLAIN.properties
        and type(properties) is not dict
        and not isinstance(properties, Mapping)
    ):
        raise TypeError(f"an envelope's properties are a mapping, not {type(properties).__name__}")
    return envelope
