"""What can be set of the lines protocol."""

from __future__ import annotations

from typing import Annotated

import msgspec


class LinesOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Newline-delimited messages."""

    max_line: Annotated[int, msgspec.Meta(ge=1)] = 65536
    """The longest line that is accepted from the peer, in bytes."""
