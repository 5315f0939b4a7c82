"""The packets of MQTT 3.1.1 and 5.0 as structs: what ``Parser`` returns and ``encode`` takes.

One struct serves both versions.  What a version does not have is at its default: a packet of MQTT 3.1.1 has
``NO_PROPERTIES`` and the reason code 0.

Three structs stand for several packets that follow each other, because these come in large numbers:

* ``Publish`` has all PUBLISH packets with one topic, properties and flags.
* ``PublishUnderTopics`` has PUBLISH packets with QoS 0 that differ in their topics.
* ``Acknowledgement`` has all PUBACK, PUBREC, PUBREL or PUBCOMP packets of one kind and reason code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec

from kernel.contracts.message import Buffer
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties
from plugins.protocols.mqtt.reason_codes import ReasonCode

AcknowledgementType = Literal[PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]


# ``gc=False``: what a packet holds was made before it and knows nothing of it, so no packet can be part of a
# reference cycle.
class Packet(msgspec.Struct, frozen=True, gc=False):
    """The base class of all packets.  Each has its ``kind``."""


class Will(msgspec.Struct, frozen=True, gc=False):
    """The message that a server publishes when the connection of a client is lost (MQTT 5.0, 3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(Packet, frozen=True, gc=False, kw_only=True):
    """CONNECT: a client asks for a connection."""

    kind: ClassVar[PacketType] = PacketType.CONNECT
    level: int = 5
    """The protocol version as the client has sent it: 3 (MQTT 3.1), 4 (MQTT 3.1.1) or 5."""
    is_bridge: bool = False
    """Whether the client is a bridge to another broker, with MQTT 3.1 or 3.1.1.

    It says so with the highest bit of the protocol version, which no specification has.  Bridges of mosquitto
    do that unless ``try_private`` is false."""
    client_id: str = ""
    """Empty: the server chooses one."""
    clean_start: bool = True
    """Called Clean Session in MQTT 3.1.1."""
    keep_alive: int = 0
    """Seconds; 0: the client may be silent for any time."""
    will: Will | None = None
    user_name: str | None = None
    password: bytes | None = None
    properties: Properties = NO_PROPERTIES

    @property
    def version(self) -> int:
        """The version of the codec: 5, or 4 for MQTT 3.1.1 and 3.1."""
        return 5 if self.level == 5 else 4


class Connack(Packet, frozen=True, gc=False, kw_only=True):
    """CONNACK: the server's answer to a CONNECT.

    ``reason_code`` is one of MQTT 5.0 also in a packet of MQTT 3.1.1: parser and encoder convert it
    (``reason_codes.return_code``).
    """

    kind: ClassVar[PacketType] = PacketType.CONNACK
    session_present: bool = False
    reason_code: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class PublishHead(msgspec.Struct, eq=False, kw_only=True):
    """Topic and properties of PUBLISH packets.

    The parser remembers heads by their bytes, so packets with equal topic and properties mostly have the same
    object.  Heads are compared by identity.
    """

    topic: str
    """Empty: ``properties.topic_alias`` stands for it."""
    properties: Properties
    attached: Any = None
    """For the parser's owner: what it has found out about this topic, such as an envelope and a route.  It is
    kept as long as the parser remembers the head.  It must not refer to the parser."""


class Publish(Packet, frozen=True, gc=False):
    """PUBLISH: one or more messages that follow each other and have the same topic, properties and flags."""

    kind: ClassVar[PacketType] = PacketType.PUBLISH
    head: PublishHead
    payloads: list[Buffer]
    """Payloads of at least ``parser.VIEW_FROM`` bytes may be views of the bytes in which they came."""
    size: int
    """The sum of the sizes of the payloads in bytes."""
    width: int = 0
    """The size of each payload, if all have the same; 0: they differ."""
    qos: int = 0
    ids: Sequence[int] = ()
    """The packet identifiers of the messages.  Empty with QoS 0."""
    retain: bool = False
    dup: bool = False

    @property
    def topic(self) -> str:
        """The topic of all messages."""
        return self.head.topic

    @property
    def properties(self) -> Properties:
        """The properties of all messages."""
        return self.head.properties


class PublishUnderTopics(Packet, frozen=True, gc=False):
    """PUBLISH: messages that follow each other, each with a topic of its own.

    They have QoS 0 and no properties, and are not retained.  Only for an owner of a parser that has called
    ``accept_keyed``.
    """

    kind: ClassVar[PacketType] = PacketType.PUBLISH
    topics: list[bytes]
    """In UTF-8, one for each payload.  They are valid, none of them begins with ``$``, and none is longer
    than the key of a keyed batch may be."""
    payloads: list[bytes]
    size: int
    """The sum of the sizes of the payloads in bytes."""
    width: int
    """The size of each payload, if all have the same; 0: they differ."""


class Acknowledgement(Packet, frozen=True, gc=False):
    """PUBACK, PUBREC, PUBREL or PUBCOMP: one or more of a kind that follow each other.

    Several only if they have the same reason code and no properties.
    """

    kind: AcknowledgementType
    ids: Sequence[int]
    reason_code: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Subscription(msgspec.Struct, frozen=True, gc=False):
    """One topic filter of a SUBSCRIBE, with its options (MQTT 5.0, 3.8.3.1)."""

    topic_filter: str
    """Without ``$share/NAME/`` if the subscription is shared."""
    qos: int = 0
    """The maximum QoS."""
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    """When retained messages are sent: 0: at the subscribe; 1: only if the subscription is new; 2: never."""
    share_name: str = ""
    """The NAME of a shared subscription ``$share/NAME/FILTER`` (MQTT 5.0, 4.8.2); empty: it is not shared."""


class Subscribe(Packet, frozen=True, gc=False):
    """SUBSCRIBE: a client asks for messages."""

    kind: ClassVar[PacketType] = PacketType.SUBSCRIBE
    id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NO_PROPERTIES


class Suback(Packet, frozen=True, gc=False):
    """SUBACK: the answer to a SUBSCRIBE, with a code for each subscription."""

    kind: ClassVar[PacketType] = PacketType.SUBACK
    id: int
    reason_codes: tuple[int, ...]
    """In MQTT 3.1.1 the return codes 0, 1, 2 and 0x80.  The encoder writes 0x80 for each code above it."""
    properties: Properties = NO_PROPERTIES


class Unsubscribe(Packet, frozen=True, gc=False):
    """UNSUBSCRIBE: a client does not want messages any more.

    The filters are as they were sent, with the ``$share/NAME/`` of shared subscriptions
    (``topics.split_share``).
    """

    kind: ClassVar[PacketType] = PacketType.UNSUBSCRIBE
    id: int
    topic_filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class Unsuback(Packet, frozen=True, gc=False):
    """UNSUBACK: the answer to an UNSUBSCRIBE."""

    kind: ClassVar[PacketType] = PacketType.UNSUBACK
    id: int
    reason_codes: tuple[int, ...] = ()
    """One for each topic filter; none in MQTT 3.1.1."""
    properties: Properties = NO_PROPERTIES


class Pingreq(Packet, frozen=True, gc=False):
    """PINGREQ: a client shows that it is there."""

    kind: ClassVar[PacketType] = PacketType.PINGREQ


class Pingresp(Packet, frozen=True, gc=False):
    """PINGRESP: the answer to a PINGREQ."""

    kind: ClassVar[PacketType] = PacketType.PINGRESP


class Disconnect(Packet, frozen=True, gc=False):
    """DISCONNECT: the last packet of a connection.  A server sends it only in MQTT 5.0."""

    kind: ClassVar[PacketType] = PacketType.DISCONNECT
    reason_code: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Auth(Packet, frozen=True, gc=False):
    """AUTH: a step of an extended authentication, only in MQTT 5.0."""

    kind: ClassVar[PacketType] = PacketType.AUTH
    reason_code: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES
