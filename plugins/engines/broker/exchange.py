"""Exchange: a name to publish to, the bindings from it (``bindings``) and the bindings to it (``incoming``).

The virtual host checks, tells the store and clears the routes; an exchange only holds its bindings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugins.engines.broker.binding import Binding, Identity
from plugins.engines.broker.contract import Matcher


class Exchange:
    """One exchange.  Its ``matcher`` finds the bindings that a message fits."""

    __slots__ = (
        "alternate",
        "arguments",
        "auto_delete",
        "bindings",
        "durable",
        "incoming",
        "internal",
        "kind",
        "matcher",
        "name",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        matcher: Matcher,
        *,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.kind = kind
        self.matcher = matcher
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        alternate = arguments.get("alternate-exchange")
        self.alternate: str | None = alternate if isinstance(alternate, str) else None
        self.bindings: dict[Identity, Binding] = {}
        self.incoming: dict[Identity, Binding] = {}

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} {self.kind}, {len(self.bindings)} bindings>"

    def add(self, binding: Binding) -> None:
        """Add a binding from this exchange."""
        self.bindings[binding.identity] = binding
        self.matcher.add(binding)

    def remove(self, binding: Binding) -> None:
        """Remove a binding from this exchange."""
        del self.bindings[binding.identity]
        self.matcher.remove(binding)
