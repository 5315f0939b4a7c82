"""SASL: what a client's mechanism and response say about who it is."""

from __future__ import annotations

from plugins.engines.broker.public import Login, Users
from plugins.protocols.amqp091.credentials import credentials_of


def log_in(
    users: Users,
    mechanism: str,
    response: bytes,
    *,
    loopback: bool,
    certified: str | None = None,
    anonymous: str = "",
) -> Login | None:
    """Return the login, or None: a client is not told the reason.

    ``certified``: the name in a certificate that TLS has verified; EXTERNAL needs nothing else.
    ``anonymous``: the user whom ANONYMOUS logs in; empty: nobody.
    """
    # The mechanisms that are not offered do not get here: the conversation refuses them with 503.
    if mechanism == "EXTERNAL":
        return users.log_in(certified, loopback=loopback) if certified else None
    if mechanism == "ANONYMOUS":
        return users.log_in(anonymous, loopback=loopback) if anonymous else None
    credentials = credentials_of(mechanism, response)
    # Malformed, or an empty name: refused as a wrong password is.
    if credentials is None or not credentials[0]:
        return None
    name, password = credentials
    return users.log_in_by_password(name, password, loopback=loopback)
