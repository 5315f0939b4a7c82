"""What a broker refuses: reply codes of AMQP 0-9-1 with the texts of RabbitMQ 3.10, which clients match on.

Other front-ends map the code to their own; the text is for people in any protocol.
"""

from __future__ import annotations

from typing import Literal

from kernel.contracts.errors import KernelError

Level = Literal["channel", "connection"]
"""What a refusal costs the client: the channel it came on, or the whole connection."""


class BrokerError(KernelError):
    """A request that the broker refuses."""

    code = 541
    name = "INTERNAL_ERROR"
    level: Level = "connection"

    def __init__(self, reason: str) -> None:
        self.text = f"{self.name} - {reason}"
        super().__init__(self.text)


class AccessRefused(BrokerError):
    """The client may not do that."""

    code, name, level = 403, "ACCESS_REFUSED", "channel"


class NotFound(BrokerError):
    """There is no such exchange or queue."""

    code, name, level = 404, "NOT_FOUND", "channel"


class ResourceLocked(BrokerError):
    """The queue belongs to another connection."""

    code, name, level = 405, "RESOURCE_LOCKED", "channel"


class PreconditionFailed(BrokerError):
    """The request contradicts what is there, or itself."""

    code, name, level = 406, "PRECONDITION_FAILED", "channel"


class CommandInvalid(BrokerError):
    """The request makes no sense."""

    code, name, level = 503, "COMMAND_INVALID", "connection"


class NotAllowed(BrokerError):
    """The request is against the rules of this broker."""

    code, name, level = 530, "NOT_ALLOWED", "connection"


class NotImplementedHere(BrokerError):
    """The request asks for what this broker does not have."""

    code, name, level = 540, "NOT_IMPLEMENTED", "connection"


def missing_queue(name: str, vhost: str) -> NotFound:
    """Return the refusal for a queue that is not there."""
    return NotFound(f"no queue '{name}' in vhost '{vhost}'")


def missing_exchange(name: str, vhost: str) -> NotFound:
    """Return the refusal for an exchange that is not there."""
    return NotFound(f"no exchange '{name}' in vhost '{vhost}'")


def locked_queue(name: str, vhost: str) -> ResourceLocked:
    """Return the refusal for a queue that belongs to another connection."""
    return ResourceLocked(
        f"cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'. "
        "It could be originally declared on another connection or the exclusive property value "
        "does not match that of the original declaration."
    )


def default_exchange_refused() -> AccessRefused:
    """Return the refusal to change the default exchange."""
    return AccessRefused("operation not permitted on the default exchange")
