"""Options of the native API."""

from __future__ import annotations

from typing import Annotated

import msgspec


class NativeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A channel for an application."""

    subscriptions: tuple[str, ...] = ()
    """Key patterns that it subscribes to when it is opened, at routes with ``router = "by-key"``."""
    auto_confirm: bool = True
    """Whether messages are confirmed when the application asks for more, or leaves the channel's ``with``
    block without an error; if false, it has to call ``confirm``."""
    batch: Annotated[int, msgspec.Meta(ge=1)] = 65_536
    """About how many messages are taken from the pipes at once, at the most."""
