"""PublishReader: reads PUBLISH packets, consecutive ones of one topic as one object.

How it works:

1. The bytes of topic and properties are the key of a ``PublishHead``.  If it is known, nothing is decoded.
2. Consecutive packets of one head and with the same flags become one ``Publish``.
3. When two packets in a row have the same size, the next ones probably have it, too.  ``_read_stride`` then
   cuts the rest of the buffer at equal distances, in C, and verifies a whole block with one comparison of
   memory.  Packet identifiers, which change from packet to packet, are cut out at the same distance by a
   slice with a step, and are zero in what is compared.

The reader also keeps the topic aliases that the peer has set (MQTT 5.0, 3.3.2.3.4), so a head always has its
topic.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from struct import Struct, unpack
from typing import Any

from kernel.contracts.message import Buffer
from plugins.protocols.mqtt.errors import PacketFault, malformed, protocol_error
from plugins.protocols.mqtt.fields import Fields, decode_text
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import Packet, Publish, PublishHead
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties
from plugins.protocols.mqtt.reason_codes import ReasonCode
from plugins.protocols.mqtt.topics import name_fault

VIEW_FROM = 32 * 1024
"""Bytes.  Payloads of at least this size are views of the bytes in which they came; smaller ones are
copies."""

MOST_HEADS = 1024
"""Heads that are remembered."""
MOST_HEAD_BYTES = 256 * 1024
"""Bytes of topics and properties that are remembered.  A peer chooses how many there are, and how large."""

_FIRST_BLOCK = 16
"""Packets in the first block that is verified at once.  After each success the next block is larger."""
_LARGEST_BLOCK = 1 << 16
"""Bytes of a block at most: the payloads that are cut should still be in the cache when they are compared."""
_STRIDE_UP_TO = 4096
"""Bytes.  Larger packets are read one by one: to compare them costs more than to read their headers."""

_cutters: dict[tuple[int, int], Callable[[Any], Any]] = {}


class PublishReader:
    """Reads the PUBLISH packets of one connection.

    ``from_server``: they come from a server.  ``topic_alias_maximum``: what the peer was told.
    """

    __slots__ = ("_aliases", "_expected", "_from_server", "_head_bytes", "_heads", "_topic_alias_maximum")

    def __init__(self, *, from_server: bool, topic_alias_maximum: int) -> None:
        self._from_server = from_server
        self._topic_alias_maximum = topic_alias_maximum
        self._heads: dict[bytes, PublishHead] = {}
        self._head_bytes = 0
        # Invariant: all heads with a topic alias agree with this table.
        self._aliases: dict[int, str] = {}
        self._expected = 0
        """Length of the last stride.  In a steady flow the next one is about as long."""

    def read(  # noqa: C901 - an inner loop
        self, data: bytes, position: int, version: int, maximum: int, packets: list[Packet]
    ) -> int:
        """Read whole PUBLISH packets from ``position`` on, with the flags of the first.

        Add them to ``packets``; return the position behind them.  It stops at the first packet that is
        incomplete, larger than ``maximum``, or of another kind or flags.  Raises ``PacketFault``; the packets
        before the faulty one are then in ``packets``.
        """
        # One long function, because it is the inner loop of a server: a call costs a tenth of a message.
        #
        # ``head`` is the head of the messages in ``payloads``, which were read and not reported yet.
        # ``before`` and ``after`` are its bytes on both sides of the packet identifier; with QoS 0
        # ``before`` has them all.
        end = len(data)
        first = data[position]
        qos = first >> 1 & 3
        starts = data.startswith
        head: PublishHead | None = None
        before = after = b""
        # Bytes of a packet between its fixed header and its payload, while ``head`` is the same.
        length = 0
        payloads: list[Buffer] = []
        ids: list[int] = []
        size = width = 0
        last_remaining = -1
        try:
            while position + 1 < end and data[position] == first:
                remaining = data[position + 1]
                body = position + 2
                if remaining >= 0x80:
                    # The usual lengths take two bytes.
                    if body < end and data[body] < 0x80:
                        remaining = remaining & 0x7F | data[body] << 7
                        body += 1
                        if version == 5 and not data[body - 1]:
                            raise malformed("PUBLISH: the remaining length has more bytes than it needs")
                    else:
                        remaining, body = remaining_length(data, position, version, "PUBLISH")
                stop = body + remaining
                # The second: ``remaining_length`` returns 0 if it is incomplete.
                if stop > end or not body or stop - position > maximum:
                    break
                start = body + length
                # Most packets have the head of the packet before them.
                if (
                    head is None
                    or not starts(before, body)
                    or start > stop
                    or (after and not starts(after, start - len(after)))
                ):
                    found, its_before, its_after = self._head(data, body, stop, version, qos)
                    if found is not head:
                        if payloads and head is not None:
                            packets.append(_publish(head, payloads, size, width, first, ids))
                            payloads, ids, size = [], [], 0
                        head = found
                    before, after = its_before, its_after
                    length = len(before) + len(after) + (2 if qos else 0)
                    start = body + length
                    last_remaining = -1
                if qos:
                    at = body + len(before)
                    identifier = data[at] << 8 | data[at + 1]
                    if not identifier:
                        raise protocol_error("PUBLISH: the packet identifier is 0")
                    ids.append(identifier)
                its_size = stop - start
                # ``width`` is the size that all payloads have, 0 as soon as two differ.
                if its_size != width:
                    width = 0 if payloads else its_size
                payloads.append(data[start:stop] if its_size < VIEW_FROM else memoryview(data)[start:stop])
                size += its_size
                # Two of a size in a row: try a stride.  It takes all that follow, so the packet behind it
                # differs or is incomplete, and there is no last size to compare with.
                if remaining == last_remaining:
                    stride = stop - position
                    prefix = data[position:start]
                    offset = 0
                    if qos:
                        offset = body - position + len(before)
                        prefix = prefix[:offset] + b"\0\0" + prefix[offset + 2 :]
                    more, more_ids = _read_stride(data, stop, prefix, its_size, offset, self._expected)
                    self._expected = len(more)
                    payloads += more
                    ids += more_ids
                    size += its_size * len(more)
                    position = stop + stride * len(more)
                    last_remaining = -1
                else:
                    position = stop
                    last_remaining = remaining if stop - body < _STRIDE_UP_TO else -1
        # Also after a fault: the packets before the faulty one count as received.
        finally:
            if payloads and head is not None:
                packets.append(_publish(head, payloads, size, width, first, ids))
        return position

    def _head(
        self, data: bytes, body: int, stop: int, version: int, qos: int
    ) -> tuple[PublishHead, bytes, bytes]:
        """Return the head of the packet, and its bytes on both sides of the packet identifier.

        With QoS 0 the first has all bytes, and the second is empty.
        """
        topic_end = body + 2 + int.from_bytes(data[body : body + 2], "big")
        after_id = topic_end + 2 if qos else topic_end
        if after_id > stop or body + 2 > stop:
            field = "the topic" if topic_end > stop or body + 2 > stop else "the packet identifier"
            raise malformed(f"PUBLISH: {field} is cut off by the end of the packet")
        start = after_id
        if version == 5:
            # The usual lengths take one byte.
            if start < stop and data[start] < 0x80:
                start += 1 + data[start]
            else:
                length = Fields(data, start, stop, "PUBLISH")
                start = length.variable("the property length") + stop - length.left()
            if start > stop:
                raise malformed("PUBLISH: the properties are cut off by the end of the packet")
        before = data[body:topic_end]
        after = data[after_id:start]
        key = before + after
        head = self._heads.get(key)
        if head is None:
            head = self._make(before, after)
            self._remember(key, head)
        return (head, before, after) if qos else (head, key, b"")

    def _make(self, before: bytes, after: bytes) -> PublishHead:
        """Decode and check topic and properties."""
        topic = decode_text(before[2:], "PUBLISH", "the topic")
        properties = NO_PROPERTIES
        if after:
            fields = Fields(after, 0, len(after), "PUBLISH")
            properties = fields.properties(PacketType.PUBLISH)
            if properties is not NO_PROPERTIES:
                self._check(properties)
        alias = properties.topic_alias
        if not topic and alias is not None:
            known = self._aliases.get(alias)
            if known is None:
                raise protocol_error(f"PUBLISH: the topic is empty, and topic alias {alias} was never set")
            return PublishHead(topic=known, properties=properties)
        fault = name_fault(topic)
        if fault is not None:
            # [MQTT-3.3.2-2]; 3.3.2.1 on the empty topic.
            raise (malformed if topic else protocol_error)(f"PUBLISH: the topic {fault}")
        if alias is not None:
            if self._aliases.get(alias, topic) != topic:
                # The heads that were made under the old meaning of the alias are wrong now.
                self._heads.clear()
                self._head_bytes = 0
            self._aliases[alias] = topic
        return PublishHead(topic=topic, properties=properties)

    def _check(self, properties: Properties) -> None:
        if properties.topic_alias is not None and properties.topic_alias > self._topic_alias_maximum:
            # [MQTT-3.3.2-9] and [MQTT-3.3.2-11]
            raise PacketFault(
                ReasonCode.TOPIC_ALIAS_INVALID,
                f"PUBLISH: topic alias {properties.topic_alias}; the maximum is {self._topic_alias_maximum}",
            )
        if properties.subscription_identifiers and not self._from_server:
            # [MQTT-3.3.4-6]
            raise protocol_error("PUBLISH: a client has sent a Subscription Identifier")
        response = properties.response_topic
        if response is not None and (fault := name_fault(response)) is not None:
            # [MQTT-3.3.2-14]
            raise protocol_error(f"PUBLISH: property Response Topic {fault}")

    def _remember(self, key: bytes, head: PublishHead) -> None:
        # Clearing everything is simpler than finding the oldest entry, and what is in use comes back with its
        # next packet.
        if len(self._heads) >= MOST_HEADS or self._head_bytes + len(key) > MOST_HEAD_BYTES:
            self._heads.clear()
            self._head_bytes = 0
        self._heads[key] = head
        self._head_bytes += len(key)


def _publish(
    head: PublishHead, payloads: list[Buffer], size: int, width: int, first: int, ids: list[int]
) -> Publish:
    return Publish(head, payloads, size, width, first >> 1 & 3, ids, bool(first & 1), bool(first & 8))


def remaining_length(data: bytes, position: int, version: int, packet: str) -> tuple[int, int]:
    """Return the remaining length of the packet at ``position``, and the position behind it.

    Both are 0 if it is incomplete.  Raises ``PacketFault``.
    """
    value = shift = 0
    for at in range(position + 1, position + 5):
        if at >= len(data):
            return 0, 0
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # [MQTT-1.5.5-1]; MQTT 3.1.1 does not forbid it.
            if not byte and shift and version == 5:
                raise malformed(f"{packet}: the remaining length has more bytes than it needs")
            return value, at + 1
        shift += 7
    raise malformed(f"{packet}: the remaining length has more than four bytes")


def read_ids(data: Buffer, offset: int, stride: int, count: int) -> list[int]:
    """Return the packet identifiers that stand at ``offset`` in ``count`` packets of ``stride`` bytes."""
    octets = bytearray(2 * count)
    octets[0::2] = data[offset::stride]
    octets[1::2] = data[offset + 1 :: stride]
    return list(unpack(f">{count}H", octets))


def _cutter(head: int, size: int) -> Callable[[Any], Any]:
    """Return a function that cuts packets with ``head`` bytes before ``size`` bytes of payload."""
    # Without a lock, although connections in several threads share the table: each step is one operation of a
    # dictionary, and an entry that is lost between two of them is made again.
    cut = _cutters.get((head, size))
    if cut is None:
        # Peers choose these sizes.
        if len(_cutters) >= 1024:
            _cutters.clear()
        cut = _cutters[head, size] = Struct(f"{head}x{size}s").iter_unpack
    return cut


def _read_stride(
    data: bytes, position: int, prefix: bytes, size: int, offset: int, expected: int
) -> tuple[list[bytes], list[int]]:
    """Return payloads and packet identifiers of the packets that have this prefix and size.

    A block is cut in C.  Then it is joined again and compared with the data: one comparison of memory
    verifies all of its packets.  ``offset``: where in ``prefix`` the packet identifier is; 0: there is none.
    ``expected``: the number of packets to try first.
    """
    stride = len(prefix) + size
    cut = _cutter(len(prefix), size)
    whole = memoryview(data)
    left = (len(data) - position) // stride
    payloads: list[bytes] = []
    ids: list[int] = []
    limit = max(_LARGEST_BLOCK // stride, 1)
    block = max(_FIRST_BLOCK, min(expected, limit))
    # Blocks grow from small to large: a flow that ends soon costs little, a steady one is verified with few
    # comparisons.
    while left:
        count = _count_repeats(
            data, position, prefix[:offset] if offset else prefix, stride, min(block, left)
        )
        some_ids: list[int] = []
        while count:
            stop = position + count * stride
            some = list(chain.from_iterable(cut(whole[position:stop])))
            # A copy, because comparing a memoryview goes byte by byte.
            image: Buffer = data[position:stop]
            if offset:
                some_ids = read_ids(image, offset, stride, count)
                image = bytearray(image)
                image[offset::stride] = image[offset + 1 :: stride] = bytes(count)
            if image == prefix.join((b"", *some)):
                break
            # A payload happens to look like a prefix, or a packet is malformed: try fewer packets.
            count //= 4
        else:
            break
        if 0 in some_ids:
            # The packet with the identifier 0 is read alone, which finds the fault.
            good = some_ids.index(0)
            return payloads + some[:good], ids + some_ids[:good]
        payloads += some
        ids += some_ids
        position += count * stride
        left -= count
        if count < block:
            break
        block = min(count * 2, limit)
    return payloads, ids


def _count_repeats(data: bytes, position: int, prefix: bytes, stride: int, count: int) -> int:
    """Estimate by bisection how many of ``count`` packets have the prefix, if the flow changes only once."""
    starts = data.startswith
    if starts(prefix, position + (count - 1) * stride):
        return count
    low = 0
    while low < count - 1:
        middle = (low + count) // 2
        if starts(prefix, position + (middle - 1) * stride):
            low = middle
        else:
            count = middle
    return low
