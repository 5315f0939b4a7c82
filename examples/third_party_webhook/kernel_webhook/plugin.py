"""The web hook as a plugin.  Light: what it needs to work is imported when an engine is made."""

from __future__ import annotations

from collections.abc import Iterable

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow
from kernel_webhook.options import WebhookOptions

REQUIRES_API_LEVEL = 1


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Offer kind ``webhook``."""
    return [
        EngineKind(
            name="webhook",
            summary="posts messages over HTTP",
            options=WebhookOptions,
            create=_create,
            flow=lambda options: Flow(gives=False, alone=False),
        ),
    ]


def _create(setup: EngineSetup) -> Engine:
    from kernel_webhook.engine import Webhook

    return Webhook(setup.name, setup.options)
