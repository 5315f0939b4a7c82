"""Options of the hub."""

from __future__ import annotations

from typing import Annotated

import msgspec


class HubOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A hub between the connections of one engine.

    It needs two routes: one to it, and one back with ``router = "others"``.
    """

    batch: Annotated[int, msgspec.Meta(ge=1)] = 1000
    """Messages that one connection may pass on before it is the turn of the next."""
