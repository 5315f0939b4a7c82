"""Users: who may log in, from where, and what they may do (RabbitMQ's configure, write and read)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from struct import error as StructError
from struct import pack
from typing import Literal

from kernel.contracts.errors import RemoteProtocolError
from plugins.engines.amqp.options import User
from plugins.engines.broker.errors import AccessRefused, NotAllowed
from plugins.protocols.amqp091.field_tables import decode_table

Operation = Literal["configure", "write", "read"]


class Login:
    """A user who has logged in."""

    def __init__(self, name: str, user: User) -> None:
        self.name = name
        self._vhosts = user.vhosts
        self._patterns: dict[Operation, re.Pattern[str]] = {}
        operations: tuple[tuple[Operation, str], ...] = (
            ("configure", user.configure),
            ("write", user.write),
            ("read", user.read),
        )
        for operation, pattern in operations:
            # No pattern and one that matches all are the same: nothing to ask at each request.
            if pattern not in ("", ".*"):
                self._patterns[operation] = re.compile(pattern)

    def require_vhost(self, vhost: str) -> None:
        """Refuse a virtual host that is not for this user."""
        if self._vhosts and vhost not in self._vhosts:
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{self.name}'")

    def require(self, operation: Operation, kind: str, name: str, vhost: str) -> None:
        """Refuse an operation on a queue or exchange that is not for this user."""
        pattern = self._patterns.get(operation)
        if pattern is not None and not pattern.search(name or "amq.default"):
            raise AccessRefused(
                f"access to {kind} '{name}' in vhost '{vhost}' refused for user '{self.name}'"
            )


class Users:
    """All who may log in."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = users

    def log_in(
        self, mechanism: str, response: bytes, *, loopback: bool, certified: str | None = None
    ) -> Login | None:
        """Return who that is, or None: the client is not told why.

        ``certified`` is the name in a certificate that TLS has verified, and all that EXTERNAL needs.
        """
        if mechanism == "EXTERNAL":
            user = self._users.get(certified) if certified else None
            return Login(certified, user) if certified and user and (loopback or user.from_anywhere) else None
        credentials = _credentials(mechanism, response)
        if credentials is None:
            return None
        name, password = credentials
        user = self._users.get(name)
        if user is None or not (loopback or user.from_anywhere):
            return None
        if not hmac.compare_digest(user.password.encode(), password):
            return None
        return Login(name, user)


def _credentials(mechanism: str, response: bytes) -> tuple[str, bytes] | None:
    try:
        if mechanism == "PLAIN":
            _, name, password = response.split(b"\0", 2)
            return name.decode(), password
        if mechanism == "AMQPLAIN":
            table, _ = decode_table(pack(">I", len(response)) + response, 0)
            return str(table["LOGIN"]), str(table["PASSWORD"]).encode()
    except (ValueError, KeyError, IndexError, StructError, RemoteProtocolError):
        return None
    return None
