"""What can be set of the NATS protocol."""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class NatsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The server's side of NATS core."""

    tls: bool = False
    """Whether clients have to begin TLS after INFO (``tls_required``); the engine's ``tls`` options have the
    certificate."""
    users: dict[str, str] = {}
    """Passwords by the names of users."""
    token: str = ""
    """A token that lets a client in; empty: there is none."""
    authenticate: bool = False
    """Whether the engine that the listener's ``authenticator`` names decides on logins."""
    max_payload: Count = 1_048_576
    """The largest message that is accepted from a client, in bytes, headers included."""
    max_control_line: Count = 4096
    """The longest protocol line that is accepted, in bytes."""
    login_timeout: Seconds = 2.0
    """Seconds until a client that has not logged in is refused."""
    ping_interval: Seconds = 120.0
    """Seconds without input from a client after which it is sent a PING."""
    max_pings: Count = 2
    """PINGs without an answer after which a client is given up."""

    subscribe_timeout: Seconds = 0.5
    """Seconds that the answer to a PING waits at most for the subscriptions before it to be in effect."""

    @property
    def login_required(self) -> bool:
        """Whether a client has to say who it is."""
        return bool(self.users or self.token or self.authenticate)
