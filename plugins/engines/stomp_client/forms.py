"""Forms: how the messages of an envelope are published on one connection, or why they cannot be."""

from __future__ import annotations

import msgspec

from kernel.contracts.message import Envelope
from plugins.engines.stomp_client.options import StompClientOptions
from plugins.protocols.stomp.destinations import PREFIXES, destination_of, escape_part
from plugins.protocols.stomp.errors import CannotCarry
from plugins.protocols.stomp.properties import headers_of
from plugins.protocols.stomp.send_template import SendTemplate
from plugins.protocols.stomp.versions import Version

_MOST_FORMS = 1024
"""Envelopes whose form is remembered."""


class Forms:
    """The forms of one connection: they depend on its version."""

    def __init__(self, options: StompClientOptions, version: Version) -> None:
        self._options = options
        self._version = version
        self._forms: dict[Envelope, SendTemplate | str] = {}

    def form_of(self, envelope: Envelope) -> SendTemplate | str:
        """Return the form of an envelope; a text: why messages under it cannot be sent."""
        found = self._forms.get(envelope)
        if found is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            found = self._forms[envelope] = self._make(envelope)
        return found

    def _make(self, envelope: Envelope) -> SendTemplate | str:
        options = self._options
        if options.persistent and not envelope.persistent:
            envelope = msgspec.structs.replace(envelope, persistent=True)
        try:
            headers = [
                ("destination", self._destination(envelope)),
                # Of repeated headers the first counts, so these overrule what the message has.
                *options.send_headers.items(),
                *headers_of(envelope),
            ]
            return SendTemplate(headers, self._version)
        except CannotCarry as error:
            return str(error)

    def _destination(self, envelope: Envelope) -> str:
        key = envelope.key
        if self._options.destination is not None:
            return self._options.destination.replace("{key}", escape_part(key))
        if envelope.exchange:
            return destination_of(envelope.exchange, key)
        # A reply goes to what the request had in reply-to: a destination of the broker.
        if key.startswith(PREFIXES):
            return key
        if not key:
            raise CannotCarry("a message without exchange and key has no destination: set destination")
        return destination_of("", key)
