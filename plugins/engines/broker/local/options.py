"""What can be set of the in-process API."""

from __future__ import annotations

from typing import Annotated

import msgspec


class BrokerClientOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An application's own access to a broker of the same kernel, without a socket."""

    broker: str
    """The engine."""
    vhost: str = "/"
    """The virtual host."""
    user: str = ""
    """Whose permissions count; no password is asked for.  Empty: everything is allowed."""
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    """Seconds that a call may wait for the broker's thread."""
