"""Options of the engine ``traces``."""

from __future__ import annotations

import msgspec


class TracesOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Makes a span of OpenTelemetry of each message that has a sampled ``traceparent`` in its headers.

    Routes lead to it with ``router = "tap"``, from the engines whose messages are to be seen.  Or it stands
    between two engines, with routes that begin at it: then the messages that it hands on have the context of
    its span, so that the next one continues the trace from there.
    """

    endpoint: str = ""
    """Where to send spans, by OTLP over HTTP, as ``http://127.0.0.1:4318/v1/traces``.  Empty: as the
    environment says (``OTEL_EXPORTER_OTLP_ENDPOINT``), or else port 4318 of this machine."""
    service_name: str = "messaging-kernel"
    """The name of the service in traces.  ``OTEL_RESOURCE_ATTRIBUTES`` adds others."""
    header: str = "traceparent"
    """The header that has the context of the publisher, and of messages that are handed on.  ``tracestate``
    is passed on beside it."""
