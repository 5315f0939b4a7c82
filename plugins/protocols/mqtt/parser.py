"""Parser: bytes in any chunking to packets, for both sides and versions, in linear time.

Three kinds of packets are read in three ways:

* PUBLISH (``publish_reader``): consecutive packets of one topic are one object.  For an owner that accepts
  it, so are those that differ in their topics (``keyed_publishes``).
* PUBACK, PUBREC, PUBREL, PUBCOMP (``_acknowledgements``): consecutive packets of one kind are one object.
* All others, one by one (``packet_reader``).

The first byte of a packet has its type and flags.  Which first bytes are allowed depends on the side, the
version, whether the connection was accepted, and on what the peer was told about QoS and retained messages.
The parser has the set of them (``_first_bytes``), so one look-up makes all these checks.

``publish_reader`` says what a message costs.  An acknowledgement takes 45 ns in a run of its kind, and 830
alone (measured in the same way).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from sys import byteorder
from typing import cast

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.protocol import Side
from plugins.protocols.mqtt.errors import PacketFault, malformed, protocol_error
from plugins.protocols.mqtt.fields import LARGEST_VARIABLE
from plugins.protocols.mqtt.keyed_publishes import count_equal
from plugins.protocols.mqtt.packet_reader import read_acknowledgement, read_packet
from plugins.protocols.mqtt.packet_types import FLAGS, FROM_CLIENT, FROM_SERVER, PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    AcknowledgementType,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
)
from plugins.protocols.mqtt.properties import NO_PROPERTIES
from plugins.protocols.mqtt.publish_reader import (
    VIEW_FROM,
    PublishReader,
    SharedHeads,
    read_ids,
    remaining_length,
)
from plugins.protocols.mqtt.reason_codes import ReasonCode

__all__ = ["VIEW_FROM", "Parser"]

_PUBLISH = PacketType.PUBLISH
_ACKNOWLEDGEMENTS: dict[int, AcknowledgementType] = {
    4: PacketType.PUBACK,
    5: PacketType.PUBREC,
    6: PacketType.PUBREL,
    7: PacketType.PUBCOMP,
}
"""By number, because to make a ``PacketType`` takes longer than to look one up."""
_KINDS: dict[int, PacketType] = {int(kind): kind for kind in PacketType}
"""The same for all packets."""
_BARE: dict[int, Packet] = {
    PacketType.PINGREQ: Pingreq(),
    PacketType.PINGRESP: Pingresp(),
    PacketType.DISCONNECT: Disconnect(),
}
"""The packets that may be two bytes long."""

# What each side may receive.  [MQTT-3.1.0-1] and [MQTT-3.2.0-1]: a CONNECT and a CONNACK come first; an
# authentication may come before the CONNACK.
_AT_FIRST: dict[Side, frozenset[PacketType]] = {
    "server": frozenset({PacketType.CONNECT}),
    "client": frozenset({PacketType.CONNACK, PacketType.AUTH}),
}
# [MQTT-3.1.0-2] and [MQTT-3.2.0-2]: they come only once.
_LATER: dict[Side, frozenset[PacketType]] = {
    "server": FROM_CLIENT - {PacketType.CONNECT},
    "client": FROM_SERVER - {PacketType.CONNACK},
}
_NOT_IN_4: dict[Side, frozenset[PacketType]] = {
    "server": frozenset({PacketType.AUTH}),
    "client": frozenset({PacketType.AUTH, PacketType.DISCONNECT}),
}


class Parser:
    """Reads what one side of a connection receives.

    A server's parser knows its version once a CONNECT was read.  Before that ``version`` is 0.
    """

    __slots__ = (
        "_accepted",
        "_first_bytes",
        "_maximum_qos",
        "_needed",
        "_publishes",
        "_retain_available",
        "_side",
        "max_packet_bytes",
        "rest",
        "version",
    )

    def __init__(
        self,
        side: Side,
        version: int = 0,
        *,
        max_packet_bytes: int = LARGEST_VARIABLE + 5,
        topic_alias_maximum: int = 0,
        maximum_qos: int = 2,
        retain_available: bool = True,
        shared_heads: SharedHeads | None = None,
    ) -> None:
        """``side``: which end of the connection reads.  ``version``: 4 or 5 for a client.

        ``topic_alias_maximum``, ``maximum_qos``, ``retain_available``: what the peer is told; the parser
        refuses packets that disregard it.  ``shared_heads``: of parsers in the same thread.
        """
        if (side == "client") != (version in (4, 5)):
            raise LocalProtocolError(f"a parser of a {side} with version {version}")
        self.version = version
        """5, or 4 for MQTT 3.1.1 and 3.1; 0: not known yet.  After a CONNECT of an unknown protocol level it
        is the version in which to refuse it."""
        self.max_packet_bytes = max_packet_bytes
        """Bytes of the largest packet, its fixed header included.  May be changed at any time."""
        self._side = side
        self._maximum_qos = maximum_qos
        self._retain_available = retain_available
        self._publishes = PublishReader(
            from_server=side == "client", topic_alias_maximum=topic_alias_maximum, shared=shared_heads
        )
        self.rest = bytearray()
        """Bytes of a packet that is not complete.  For the owner to look at, and not to change."""
        self._needed = 0
        """How many bytes ``rest`` has to have before it is read again."""
        self._accepted = False
        """Whether the CONNECT was read, or the CONNACK."""
        self._first_bytes = _first_bytes(side, version, False, maximum_qos, retain_available)

    def accept_keyed(self) -> None:
        """From now on return PUBLISH packets that differ in their topics together: ``PublishUnderTopics``.

        Where there are several.
        """
        self._publishes.accept_keyed()

    def receive_data(self, data: bytes) -> list[Packet]:
        """Return the packets that ``data`` completes, in order.

        Raises ``PacketFault`` and nothing else; the parser must not be used after that.
        """
        rest = self.rest
        if rest:
            # Collected in place, and joined once the packet is complete: so each byte is copied a bounded
            # number of times, even if the peer sends single bytes.
            if len(rest) + len(data) < self._needed:
                rest += data
                return []
            data = b"".join((rest, data))
            rest.clear()
        packets: list[Packet] = []
        try:
            position = self._packets(data, packets)
        except PacketFault as fault:
            fault.packets = packets
            raise
        if position < len(data):
            rest += data[position:] if position else data
        return packets

    def read_publish(self, data: bytes) -> Publish | None:
        """Return the message of a chunk that is one PUBLISH, mostly, and nothing else.

        None: it is something else, and nothing was read.  Clients that publish message by message send such
        chunks, and these need no loop and no list of packets.
        """
        if data[0] & 0xF0 != 0x30 or self.rest or data[0] not in self._first_bytes:
            return None
        return self._publishes.read_alone(data, self.version, self.max_packet_bytes)

    def read_pubacks(self, data: bytes) -> Sequence[int]:
        """Return the packet identifiers of a chunk that is PUBACK without reason codes, and nothing else.

        Empty: it is something else, and nothing was read.  Clients that receive with QoS 1 send such chunks.
        """
        if data[0] != 0x40 or len(data) & 3 or self.rest or not self._accepted:
            return ()
        if len(data) == 4:
            identifier = data[2] << 8 | data[3]
            return (identifier,) if data[1] == 2 and identifier else ()
        numbers = array("H", data)
        if byteorder == "little":
            numbers.byteswap()
        ids = numbers[1::2].tolist()
        return ids if numbers[::2].count(0x4002) == len(ids) and 0 not in ids else ()

    def receive_eof(self) -> None:
        """Take notice that the peer sends no more.  Raises ``PacketFault`` in the middle of a packet."""
        if self.rest:
            raise malformed(
                f"the connection ended in the middle of a packet, after {len(self.rest)} bytes of it"
            )

    def _packets(self, data: bytes, packets: list[Packet]) -> int:
        """Read all whole packets; return the position of the first incomplete one."""
        position, end = 0, len(data)
        while position < end:
            first = data[position]
            # Before the packet is complete: a peer that does not speak MQTT should not be waited for.
            if first not in self._first_bytes:
                raise self._not_allowed(first)
            if position + 1 < end and data[position + 1] < 0x80:
                remaining, body = data[position + 1], position + 2
            else:
                name = PacketType(first >> 4).name
                remaining, body = remaining_length(data, position, self.version, name)
                if not body:
                    self._needed = end - position + 1
                    break
            stop = body + remaining
            # Before the packet is complete: nothing is collected of one that is too large.
            if stop - position > self.max_packet_bytes:
                raise PacketFault(
                    ReasonCode.PACKET_TOO_LARGE,
                    f"{PacketType(first >> 4).name}: a packet of {stop - position} bytes; "
                    f"the maximum is {self.max_packet_bytes}",
                )
            if stop > end:
                self._needed = stop - position
                break
            kind = first >> 4
            if not remaining and (bare := _BARE.get(kind)) is not None:
                packets.append(bare)
                position = stop
            elif kind == 3:
                position = self._publishes.read(data, position, self.version, self.max_packet_bytes, packets)
            elif 4 <= kind <= 7:
                position = self._acknowledgements(data, position, body, stop, packets)
            else:
                packets.append(self._one(_KINDS[kind], data, body, stop))
                position = stop
        return position

    def _one(self, kind: PacketType, data: bytes, body: int, stop: int) -> Packet:
        if kind is PacketType.CONNECT:
            # The answer to a protocol level that is not known is in the format of the nearest version: the
            # level is the byte behind the protocol name.
            name_end = body + 2 + int.from_bytes(data[body : body + 2], "big")
            level = data[name_end] if name_end < stop else 4
            # The high bit is that of a bridge of MQTT 3.1.
            self.version = 5 if level & 0x7F >= 5 else 4
        packet = read_packet(kind, data, body, stop, self.version)
        if isinstance(packet, (Connect, Connack)):
            # The remaining length of a CONNECT was read before the version was known [MQTT-1.5.5-1].
            if self.version == 5 and data[body - 1] == 0 and data[body - 2] >= 0x80:
                raise malformed("CONNECT: the remaining length has more bytes than it needs")
            self._accepted = True
            self._first_bytes = _first_bytes(
                self._side, self.version, True, self._maximum_qos, self._retain_available
            )
        if kind is PacketType.DISCONNECT and self._side == "client":
            self._check_disconnect(cast("Disconnect", packet))
        return packet

    def _check_disconnect(self, packet: Disconnect) -> None:
        # [MQTT-3.14.2-2]
        if packet.properties.session_expiry_interval is not None:
            raise protocol_error("DISCONNECT: a server has sent a Session Expiry Interval")

    def _acknowledgements(
        self, data: bytes, position: int, body: int, stop: int, packets: list[Packet]
    ) -> int:
        """Read consecutive acknowledgements of one kind; return the position behind them."""
        kind = _ACKNOWLEDGEMENTS[data[position] >> 4]
        identifier = data[body] << 8 | data[body + 1] if stop == body + 2 else 0
        if identifier:
            one = Acknowledgement(kind, (identifier,))
        else:
            one = read_acknowledgement(kind, data, body, stop, self.version)
        # The next packet has another kind or size, or this one has properties, which a run cannot compare.
        if not data.startswith(data[position:body], stop) or one.properties is not NO_PROPERTIES:
            packets.append(one)
            return stop
        stride = stop - position
        # Packets that differ only in the packet identifier.
        constant = [*range(body - position), *range(body - position + 2, stride)]
        count = count_equal(data, position, stride, constant, len(data))
        following = position + count * stride
        ids = read_ids(data[position:following], body - position, stride, count)
        if 0 in ids:
            # The packet with the identifier 0 is then read alone, which finds the fault.
            ids = ids[: ids.index(0)]
            following = position + len(ids) * stride
        packets.append(Acknowledgement(one.kind, ids, one.reason_code))
        return following

    def _not_allowed(self, first: int) -> PacketFault:
        """Return what is wrong with the first byte of a packet."""
        number = first >> 4
        if not number or (number == PacketType.AUTH and self.version == 4):
            return malformed(f"packet type {number} is reserved")
        kind = PacketType(number)
        if kind is _PUBLISH:
            qos = first >> 1 & 3
            if qos == 3:
                # [MQTT-3.3.1-4]
                return malformed("PUBLISH: QoS 3")
            if first & 8 and not qos:
                return malformed("PUBLISH: the DUP flag with QoS 0")
        elif first & 0x0F != FLAGS[kind]:
            return malformed(f"{kind.name}: the flags are {first & 0x0F:#x}, not {FLAGS[kind]:#x}")
        if not self._accepted:
            expected = "CONNECT" if self._side == "server" else "CONNACK"
            return protocol_error(f"{kind.name}: the first packet has to be a {expected}")
        if kind in (PacketType.CONNECT, PacketType.CONNACK) and (kind in FROM_CLIENT) == (
            self._side == "server"
        ):
            return protocol_error(f"{kind.name}: a second one on the same connection")
        if kind is not _PUBLISH:
            peer = "client" if self._side == "server" else "server"
            return protocol_error(f"{kind.name}: a {peer} does not send it")
        if first >> 1 & 3 > self._maximum_qos:
            # [MQTT-3.2.2-11]
            return PacketFault(
                ReasonCode.QOS_NOT_SUPPORTED,
                f"PUBLISH: QoS {first >> 1 & 3}; the maximum is {self._maximum_qos}",
            )
        # [MQTT-3.2.2-14]
        return PacketFault(
            ReasonCode.RETAIN_NOT_SUPPORTED, "PUBLISH: a retained message; they are not available"
        )


@cache
def _first_bytes(
    side: Side, version: int, accepted: bool, maximum_qos: int, retain_available: bool
) -> frozenset[int]:
    """Return which first bytes are allowed; the same set for all connections of a kind."""
    kinds = (_LATER if accepted else _AT_FIRST)[side]
    if version == 4:
        kinds -= _NOT_IN_4[side]
    # [MQTT-2.1.3-1]: the flags of all packets but PUBLISH are fixed.
    allowed = {kind << 4 | FLAGS[kind] for kind in kinds if kind is not _PUBLISH}
    if _PUBLISH in kinds:
        for qos in range(maximum_qos + 1):
            for retain in range(retain_available + 1):
                allowed.add(_PUBLISH << 4 | qos << 1 | retain)
                # [MQTT-3.3.1-2]: no DUP with QoS 0.
                if qos:
                    allowed.add(_PUBLISH << 4 | 8 | qos << 1 | retain)
    return frozenset(allowed)
