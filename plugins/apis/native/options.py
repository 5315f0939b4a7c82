"""Options of the native API."""

from __future__ import annotations

from typing import Annotated

import msgspec


class NativeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An application's way in."""

    subscriptions: tuple[str, ...] = ()
    """Key patterns that it wants of routes with ``router = "by-key"`` from the start."""
    auto_confirm: bool = True
    """A message counts as dealt with when the application comes back for the next batch, or leaves the
    channel's ``with`` block without an error; otherwise it has to call ``confirm``."""
    batch: Annotated[int, msgspec.Meta(ge=1)] = 65_536
    """Messages that are taken out of the pipes at once, at the most."""
