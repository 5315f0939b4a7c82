"""Logging in: who a client is, by CONNECT, by AUTH, by its certificate, or because nobody has to say it."""

from __future__ import annotations

from typing import NamedTuple

from plugins.engines.broker.public import Accepted, BrokerEngine, Login
from plugins.engines.mqtt.options import MqttListenerOptions

PLAIN = "PLAIN"
"""The one authentication method of MQTT 5: name and password as in SASL PLAIN (RFC 4616)."""


class Attempt(NamedTuple):
    """An attempt to log in."""

    name: str
    vhost: str
    how: str
    """What the client has proved itself with, for operators."""
    login: Login | None
    """None: it has failed."""


def log_in(
    engine: BrokerEngine,
    accepted: Accepted,
    options: MqttListenerOptions,
    name: str | None,
    password: bytes | None,
) -> Attempt:
    """Try to log in.  Without a name, a certificate counts, or else the option ``anonymous``."""
    users, vhost = engine.users, options.vhost
    if name is None:
        certified = accepted.certified is not None
        user = accepted.certified or options.anonymous
        login = users.log_in(user, loopback=accepted.loopback) if user else None
        return Attempt(user, vhost, "a certificate" if certified else "no user name", login)
    before, colon, user = name.partition(":")
    # As RabbitMQ has it, for clients that can say a user name and no virtual host.
    if colon and before in engine.broker.vhosts:
        vhost, name = before, user
    try:
        text = (password or b"").decode()
    except UnicodeDecodeError:
        return Attempt(name, vhost, "a password", None)
    login = users.log_in_by_password(name, text, loopback=accepted.loopback)
    return Attempt(name, vhost, "a password", login)


def plain_credentials(data: bytes | None) -> tuple[str, bytes]:
    """Return name and password from a message of SASL PLAIN; empty ones if it is none."""
    # Authorization identity, NUL, name, NUL, password.
    pieces = (data or b"").split(b"\0")
    if len(pieces) != 3:
        return "", b""
    return pieces[1].decode("utf-8", "replace"), pieces[2]
