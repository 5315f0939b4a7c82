"""Logging in: who a client is, by CONNECT, by AUTH, by its certificate, or because nobody has to say it."""

from __future__ import annotations

import hmac
import secrets
from functools import lru_cache
from typing import NamedTuple

from plugins.engines.broker.public import Accepted, BrokerEngine, Login
from plugins.engines.mqtt.options import MqttListenerOptions
from plugins.protocols.mqtt.scram import SCRAM, ScramFault, ScramKeys, ServerExchange, scram_keys

PLAIN = "PLAIN"
"""An authentication method of MQTT 5: name and password as in SASL PLAIN (RFC 4616)."""
METHODS = (PLAIN, SCRAM)
_MOST_KEYS = 4096
"""Names of which the keys are remembered: to compute them takes a millisecond or two."""


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
    users = engine.users
    if name is None:
        certified = accepted.certified is not None
        user = accepted.certified or options.anonymous
        login = users.log_in(user, loopback=accepted.loopback) if user else None
        return Attempt(user, options.vhost, "a certificate" if certified else "no user name", login)
    vhost, name = _split(engine, options, name)
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


def _split(engine: BrokerEngine, options: MqttListenerOptions, name: str) -> tuple[str, str]:
    """Return virtual host and user of ``VHOST:USER``, or of the name of a user alone."""
    # As RabbitMQ has it, for clients that can say a user name and no virtual host.
    before, colon, user = name.partition(":")
    return (before, user) if colon and engine.has_vhost(before) else (options.vhost, name)


class ScramLogins:
    """What the SCRAM logins of a broker have in common.

    A name that does not exist, or whose password the broker knows by a hash only, has salt and keys, too, and
    they are computed in the same way.  So neither an answer nor its time tells which names there are.
    """

    def __init__(self, engine: BrokerEngine) -> None:
        self.engine = engine
        self._secret = secrets.token_bytes(32)
        self._computed = lru_cache(_MOST_KEYS)(scram_keys)

    def keys_of(self, name: str, password: str | None) -> ScramKeys:
        """Return the keys of a name, as the client has sent it.  Without a password no proof is right."""
        # The salt of a name has to be the same each time, as that of a user would be. The secret differs in
        # each run of the broker, so nobody can compute it.
        salt = hmac.digest(self._secret, b"salt " + name.encode(), "sha256")[:16]
        nobodys = hmac.digest(self._secret, b"password " + name.encode(), "sha256").hex()
        return self._computed(nobodys if password is None else password, salt)


class ScramLogin:
    """The SCRAM exchange of one client."""

    def __init__(self, logins: ScramLogins, accepted: Accepted, options: MqttListenerOptions) -> None:
        self._logins = logins
        self._accepted = accepted
        self._options = options
        self._exchange = ServerExchange(secrets.token_urlsafe(24), self._keys_of)
        self._has_password = True

    def _keys_of(self, name: str) -> ScramKeys:
        engine = self._logins.engine
        password = engine.users.plain_password(_split(engine, self._options, name)[1])
        self._has_password = password is not None
        return self._logins.keys_of(name, password)

    def first(self, message: bytes) -> bytes | Attempt:
        """Return the answer to the client's first message; an ``Attempt`` has failed."""
        try:
            return self._exchange.first(message)
        except ScramFault as fault:
            return Attempt(self._exchange.name, self._options.vhost, f"{SCRAM} ({fault})", None)

    def final(self, message: bytes) -> tuple[Attempt, bytes]:
        """Return the result, and the signature for the client, after its final message."""
        engine = self._logins.engine
        vhost, name = _split(engine, self._options, self._exchange.name)
        try:
            signature = self._exchange.final(message)
        except ScramFault as fault:
            return Attempt(name, vhost, f"{SCRAM} ({fault})", None), b""
        how, login = SCRAM, None
        if not self._has_password:
            # For operators.  The client is told what it is told of a wrong password.
            how = f"{SCRAM}, which needs a user with a 'password' in the topology file, not a hash of it"
        elif signature is not None:
            # The proof was right. The user may still be one that may not log in from there.
            login = engine.users.log_in(name, loopback=self._accepted.loopback)
        return Attempt(name, vhost, how, login), signature or b""
