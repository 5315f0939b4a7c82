"""Broker errors: the reply codes of AMQP 0-9-1 with the texts of RabbitMQ 3.10, which clients compare.

Other front ends map the code to one of their protocol, and use the text as it is.
"""

from __future__ import annotations

from typing import Literal

from kernel.contracts.errors import KernelError

Level = Literal["channel", "connection"]
"""What an AMQP server closes because of the error: the channel or the connection."""


class BrokerError(KernelError):
    """A request that the broker refuses."""

    code = 541
    name = "INTERNAL_ERROR"
    level: Level = "connection"

    def __init__(self, reason: str) -> None:
        self.text = f"{self.name} - {reason}"
        super().__init__(self.text)


class AccessRefused(BrokerError):
    """The client has no permission for it."""

    code, name, level = 403, "ACCESS_REFUSED", "channel"


class NotFound(BrokerError):
    """The exchange or queue does not exist."""

    code, name, level = 404, "NOT_FOUND", "channel"


class ResourceLocked(BrokerError):
    """The queue belongs to another connection."""

    code, name, level = 405, "RESOURCE_LOCKED", "channel"


class PreconditionFailed(BrokerError):
    """The request contradicts the state of the broker, or itself."""

    code, name, level = 406, "PRECONDITION_FAILED", "channel"


class CommandInvalid(BrokerError):
    """The request is invalid."""

    code, name, level = 503, "COMMAND_INVALID", "connection"


class NotAllowed(BrokerError):
    """The configuration of this broker does not allow the request."""

    code, name, level = 530, "NOT_ALLOWED", "connection"


class NotImplementedHere(BrokerError):
    """The request needs a feature that this broker does not have."""

    code, name, level = 540, "NOT_IMPLEMENTED", "connection"


def missing_queue(name: str, vhost: str) -> NotFound:
    """Return the error for a queue that does not exist."""
    return NotFound(f"no queue '{name}' in vhost '{vhost}'")


def missing_exchange(name: str, vhost: str) -> NotFound:
    """Return the error for an exchange that does not exist."""
    return NotFound(f"no exchange '{name}' in vhost '{vhost}'")


def locked_queue(name: str, vhost: str) -> ResourceLocked:
    """Return the error for a queue that belongs to another connection."""
    return ResourceLocked(
        f"cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'. "
        "It could be originally declared on another connection or the exclusive property value "
        "does not match that of the original declaration."
    )


def default_exchange_refused() -> AccessRefused:
    """Return the error for an operation on the default exchange."""
    return AccessRefused("operation not permitted on the default exchange")
