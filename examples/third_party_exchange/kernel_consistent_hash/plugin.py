"""The exchange type as a plugin.  Light: what it needs to work is imported when an exchange is declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernel import hookimpl
from plugins.engines.broker.contract import ExchangeTypeKind

REQUIRES_API_LEVEL = 1


@hookimpl
def register_exchange_types() -> Iterable[ExchangeTypeKind]:
    """Offer type ``x-consistent-hash``."""
    return [
        ExchangeTypeKind(
            name="x-consistent-hash",
            summary="each message to one queue, by the hash of its key; binding keys are weights",
            create=_create,
        )
    ]


def _create(arguments: Mapping[str, Any]) -> Any:
    from kernel_consistent_hash.matchers import make_matcher

    return make_matcher(arguments)
