"""The error of MQTT: what is wrong with the packets of a peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.mqtt.reason_codes import ReasonCode

if TYPE_CHECKING:
    from plugins.protocols.mqtt.packets import Packet


class PacketFault(RemoteProtocolError):
    """A malformed packet or a protocol error (MQTT 5.0, 4.13).  The connection has to be closed.

    ``reason_code`` is for the DISCONNECT that a server of MQTT 5.0 sends before, or for the CONNACK if the
    packet was a CONNECT (``reason_codes.return_code`` has the code for MQTT 3.1.1).  The text names the
    packet and the field.

    ``packets`` has those of the same bytes that were complete before the fault: they count as received.
    """

    def __init__(self, reason_code: ReasonCode, text: str, packets: Sequence[Packet] = ()) -> None:
        super().__init__(text)
        self.reason_code = reason_code
        self.packets = packets


def malformed(text: str) -> PacketFault:
    """Return the fault for a packet that cannot be parsed."""
    return PacketFault(ReasonCode.MALFORMED_PACKET, text)


def protocol_error(text: str) -> PacketFault:
    """Return the fault for a packet that can be parsed and has what the protocol does not allow."""
    return PacketFault(ReasonCode.PROTOCOL_ERROR, text)
