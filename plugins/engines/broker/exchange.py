"""Exchange: a name to publish to, the bindings from it (``bindings``) and the bindings to it (``incoming``).

The virtual host checks, tells the store and clears the routes; an exchange only holds its bindings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugins.engines.broker.binding import Binding, Identity
from plugins.engines.broker.contract import Matcher
from plugins.engines.broker.policies import ALTERNATE, Policy


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
        "operator_policy",
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
        operator_policy: Policy | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.matcher = matcher
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        self.operator_policy: Policy | None = None
        """The policy that applies."""
        self.alternate: str | None = None
        """The name of the exchange that gets what no binding here matches."""
        self.take_policy(operator_policy)
        self.bindings: dict[Identity, Binding] = {}
        self.incoming: dict[Identity, Binding] = {}

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} {self.kind}, {len(self.bindings)} bindings>"

    def take_policy(self, policy: Policy | None) -> None:
        """Another policy applies, or none.  The caller clears the routes.

        What the exchange itself was declared with counts first (RabbitMQ).
        """
        self.operator_policy = policy
        alternate = self.arguments.get(ALTERNATE)
        if alternate is None and policy is not None:
            alternate = policy.definition.get(ALTERNATE)
        self.alternate = alternate if isinstance(alternate, str) else None

    def add(self, binding: Binding) -> None:
        """Add a binding from this exchange."""
        self.bindings[binding.identity] = binding
        self.matcher.add(binding)

    def remove(self, binding: Binding) -> None:
        """Remove a binding from this exchange."""
        del self.bindings[binding.identity]
        self.matcher.remove(binding)
