"""What a peer can do wrong: each fault has its reason code and a text that names the packet and the field."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.protocol import Side
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.errors import PacketFault
from plugins.protocols.mqtt.packet_types import FLAGS, FROM_CLIENT, FROM_SERVER, PacketType
from plugins.protocols.mqtt.packets import Connack
from plugins.protocols.mqtt.parser import Parser
from plugins.protocols.mqtt.properties import TABLE, WILL, Property
from plugins.protocols.mqtt.reason_codes import REASONS_OF, ReasonCode, ReturnCode, return_code
from tests.notes import for_each
from tests.plugins.protocols.mqtt.conversation import CONNACK, CONNECT, fresh, opened, plain
from tests.plugins.protocols.mqtt.golden import EXAMPLES, Example

MALFORMED, ERROR = 0x81, 0x82


class Fault(NamedTuple):
    reason: int
    receiver: str
    """The side, ``s`` or ``c``, and the versions: ``s45``; ``first``: before the connection is accepted."""
    data: bytes
    words: str
    """What the text has to say."""


def _fault(reason: int, receiver: str, octets: str, words: str) -> Fault:
    data = b""
    for number, piece in enumerate(octets.split("'")):
        data += piece.encode() if number % 2 else bytes.fromhex(piece)
    return Fault(reason, receiver, data, words)


FAULTS = {
    # The fixed header.
    "packet type 0": _fault(MALFORMED, "s45 c45", "00 00", "packet type 0 is reserved"),
    "AUTH in 3.1.1": _fault(MALFORMED, "s4 c4", "f0 00", "packet type 15 is reserved"),
    "flags of PINGREQ": _fault(MALFORMED, "s45", "c1 00", "PINGREQ: the flags are 0x1, not 0x0"),
    "flags of SUBSCRIBE": _fault(MALFORMED, "s45", "80 06 000a 0001 'a' 00", "SUBSCRIBE: the flags"),
    "flags of UNSUBSCRIBE": _fault(MALFORMED, "s45", "a0 05 000a 0001 'a'", "UNSUBSCRIBE: the flags"),
    "flags of PUBREL": _fault(MALFORMED, "s45 c45", "60 02 0001", "PUBREL: the flags are 0x0, not 0x2"),
    "flags of PUBACK": _fault(MALFORMED, "s45 c45", "42 02 0001", "PUBACK: the flags"),
    "flags of CONNECT": _fault(MALFORMED, "s45first", "11 00", "CONNECT: the flags are 0x1"),
    "flags of CONNACK": _fault(MALFORMED, "c45first", "28 02 00 00", "CONNACK: the flags"),
    "QoS 3": _fault(MALFORMED, "s45 c45", "36 06 0001 'a' 0001 00", "PUBLISH: QoS 3"),
    "DUP with QoS 0": _fault(MALFORMED, "s45 c45", "38 04 0001 'a' 00", "PUBLISH: the DUP flag with QoS 0"),
    "remaining length of five bytes": _fault(
        MALFORMED, "s45 c45", "30 80808080 01", "PUBLISH: the remaining length has more than four bytes"
    ),
    "remaining length of five bytes, incomplete": _fault(
        MALFORMED, "s45first", "10 ffffffff", "CONNECT: the remaining length has more than four bytes"
    ),
    "remaining length too long": _fault(MALFORMED, "s5", "c0 8000", "PINGREQ: the remaining length has more"),
    "remaining length of PUBLISH too long": _fault(
        MALFORMED, "s5 c5", "30 8600 0001 'a' 00 'bc'", "PUBLISH: the remaining length has more bytes than"
    ),
    "remaining length of PUBLISH too long in three bytes": _fault(
        MALFORMED, "s5 c5", "30 868000 0001 'a' 00 'bc'", "PUBLISH: the remaining length has more bytes than"
    ),
    "remaining length of CONNECT too long": _fault(
        MALFORMED, "s5first", "10 8e00 0004 'MQTT' 05 02 0000 00 0001 'a'", "CONNECT: the remaining length"
    ),
    # What may come when.
    "PUBLISH before CONNECT": _fault(
        ERROR, "s45first", "30 04 0001 'a' 00", "PUBLISH: the first packet has to be a CONNECT"
    ),
    "PINGRESP before CONNACK": _fault(
        ERROR, "c45first", "d0 00", "PINGRESP: the first packet has to be a CONNACK"
    ),
    "DISCONNECT before CONNACK": _fault(ERROR, "c5first", "e0 00", "DISCONNECT: the first packet has to be"),
    "another protocol before CONNECT": _fault(
        MALFORMED, "s45first", "'GET / HTTP/1.1'", "PUBACK: the flags are 0x7"
    ),
    "a second CONNECT": Fault(ERROR, "s4", CONNECT[4], "CONNECT: a second one"),
    "a second CONNECT in 5": Fault(ERROR, "s5", CONNECT[5], "CONNECT: a second one"),
    "a second CONNACK": Fault(ERROR, "c4", CONNACK[4], "CONNACK: a second one"),
    "a second CONNACK in 5": Fault(ERROR, "c5", CONNACK[5], "CONNACK: a second one"),
    "CONNACK from a client": Fault(ERROR, "s4", CONNACK[4], "CONNACK: a client does not send it"),
    "SUBACK from a client": _fault(ERROR, "s45", "90 03 0001 00", "SUBACK: a client does not send it"),
    "UNSUBACK from a client": _fault(ERROR, "s45", "b0 02 0001", "UNSUBACK: a client does not send it"),
    "PINGRESP from a client": _fault(ERROR, "s45", "d0 00", "PINGRESP: a client does not send it"),
    "PINGREQ from a server": _fault(ERROR, "c45", "c0 00", "PINGREQ: a server does not send it"),
    "SUBSCRIBE from a server": _fault(ERROR, "c45", "82 06 0001 0001 'a' 00", "SUBSCRIBE: a server does"),
    "DISCONNECT from a server of 3.1.1": _fault(ERROR, "c4", "e0 00", "DISCONNECT: a server does not send"),
    # CONNECT.
    "unknown protocol name": _fault(0x84, "s45first", "10 0d 0004 'MQTX' 04 02 0000 0001 'a'", "b'MQTX'"),
    "unknown level": _fault(0x84, "s45first", "10 0d 0004 'MQTT' 07 02 0000 0001 'a'", "of level 7"),
    "level 3 with the name of 4": _fault(
        0x84, "s4first", "10 0d 0004 'MQTT' 03 02 0000 0001 'a'", "of level 3"
    ),
    "level 4 with the name of 3": _fault(
        0x84, "s4first", "10 0f 0006 'MQIsdp' 04 02 0000 0001 'a'", "b'MQIsdp' of level 4"
    ),
    "bridge of 5.0": _fault(0x84, "s5first", "10 0e 0004 'MQTT' 85 02 0000 00 0001 'a'", "of level 133"),
    "bridge with the name of 3.1.1 and the level of 3.1": _fault(
        0x84, "s4first", "10 0d 0004 'MQTT' 83 02 0000 0001 'a'", "of level 3"
    ),
    "reserved flag of CONNECT": _fault(
        MALFORMED, "s45first", "10 0d 0004 'MQTT' 04 03 0000 0001 'a'", "CONNECT: the reserved flag"
    ),
    "will QoS without will": _fault(
        MALFORMED, "s45first", "10 0d 0004 'MQTT' 04 0a 0000 0001 'a'", "CONNECT: a will QoS or will retain"
    ),
    "will retain without will": _fault(
        MALFORMED, "s45first", "10 0e 0004 'MQTT' 05 22 0000 00 0001 'a'", "without the will flag"
    ),
    "will QoS 3": _fault(
        MALFORMED, "s45first", "10 13 0004 'MQTT' 04 1e 0000 0001 'a' 0001 'w' 0001 'p'", "the will QoS is 3"
    ),
    "password without user name": _fault(
        MALFORMED, "s4first", "10 10 0004 'MQTT' 04 42 0000 0001 'a' 0001 'p'", "a password without a user"
    ),
    "will flag without will": _fault(
        MALFORMED, "s45first", "10 0d 0004 'MQTT' 04 06 0000 0001 'a'", "the will topic is cut off"
    ),
    "will flag without will payload": _fault(
        MALFORMED, "s45first", "10 10 0004 'MQTT' 04 06 0000 0001 'a' 0001 'w'", "the will payload is cut off"
    ),
    "user name flag without user name": _fault(
        MALFORMED, "s45first", "10 0d 0004 'MQTT' 04 82 0000 0001 'a'", "the user name is cut off"
    ),
    "password flag without password": _fault(
        MALFORMED, "s45first", "10 10 0004 'MQTT' 04 c2 0000 0001 'a' 0001 'u'", "the password is cut off"
    ),
    "user name without its flag": _fault(
        MALFORMED, "s45first", "10 10 0004 'MQTT' 04 02 0000 0001 'a' 0001 'u'", "3 bytes behind the last"
    ),
    "will without its flag": _fault(
        MALFORMED,
        "s45first",
        "10 13 0004 'MQTT' 04 02 0000 0001 'a' 0001 'w' 0001 'p'",
        "6 bytes behind the last field",
    ),
    "password without its flag": _fault(
        MALFORMED,
        "s5first",
        "10 14 0004 'MQTT' 05 82 0000 00 0001 'a' 0001 'u' 0001 'p'",
        "3 bytes behind the last field",
    ),
    "no client identifier": _fault(
        MALFORMED, "s45first", "10 0a 0004 'MQTT' 04 02 0000", "the client identifier is cut off"
    ),
    "client identifier that is not UTF-8": _fault(
        MALFORMED, "s45first", "10 0d 0004 'MQTT' 04 02 0000 0001 ff", "the client identifier is not UTF-8"
    ),
    "user name that is not UTF-8": _fault(
        MALFORMED, "s45first", "10 10 0004 'MQTT' 04 82 0000 0001 'a' 0001 c0", "the user name is not UTF-8"
    ),
    "will topic that is not UTF-8": _fault(
        MALFORMED, "s45first", "10 12 0004 'MQTT' 04 06 0000 0001 'a' 0001 80 0000", "the will topic is not"
    ),
    "empty client identifier and a session": _fault(
        0x85, "s4first", "10 0c 0004 'MQTT' 04 00 0000 0000", "CONNECT: the client identifier is empty"
    ),
    "empty client identifier in 3.1": _fault(
        0x85, "s4first", "10 0e 0006 'MQIsdp' 03 02 0000 0000", "CONNECT: the client identifier is empty"
    ),
    "will topic with a wildcard": _fault(
        MALFORMED, "s45first", "10 12 0004 'MQTT' 04 06 0000 0001 'a' 0001 '#' 0000", "the will topic '#' has"
    ),
    "empty will topic": _fault(
        MALFORMED, "s45first", "10 11 0004 'MQTT' 04 06 0000 0001 'a' 0000 0000", "the will topic is empty"
    ),
    "response topic of the will with a wildcard": _fault(
        ERROR,
        "s5first",
        "10 18 0004 'MQTT' 05 06 0000 00 0001 'a' 04 08 0001 '+' 0001 'w' 0000",
        "the Response Topic of the will",
    ),
    "authentication data without a method": _fault(
        ERROR, "s5first", "10 12 0004 'MQTT' 05 02 0000 04 16 0001 00 0001 'a'", "without an Authentication M"
    ),
    # CONNACK.
    "reserved flags of CONNACK": _fault(MALFORMED, "c4first", "20 02 02 00", "CONNACK: the reserved flags"),
    "reserved flags of CONNACK in 5": _fault(MALFORMED, "c5first", "20 03 80 00 00", "CONNACK: the reserved"),
    "return code 6": _fault(ERROR, "c4first", "20 02 00 06", "CONNACK: return code 6 is reserved"),
    "return code 6 to version 5": _fault(ERROR, "c5first", "20 02 00 06", "return code 6 is reserved"),
    "return code with a session to version 5": _fault(ERROR, "c5first", "20 02 01 01", "with a session"),
    "CONNACK with an unknown reason": _fault(ERROR, "c5first", "20 03 00 01 00", "reason code 0x01 is not"),
    "refused with a session": _fault(ERROR, "c4first", "20 02 01 05", "a refused connection with a session"),
    "refused with a session in 5": _fault(ERROR, "c5first", "20 03 01 87 00", "a refused connection with"),
    "CONNACK without properties": _fault(MALFORMED, "c5first", "20 02 00 00", "the property length is cut"),
    # PUBLISH.
    "empty topic": _fault(ERROR, "s4 c4", "30 02 0000", "PUBLISH: the topic is empty"),
    "empty topic without an alias": _fault(ERROR, "s5 c5", "30 03 0000 00", "PUBLISH: the topic is empty"),
    "unknown alias": _fault(ERROR, "s5 c5", "30 06 0000 03 23 0001", "topic alias 1 was never set"),
    "alias 0": _fault(0x94, "s5 c5", "30 07 0001 'a' 03 23 0000", "property Topic Alias is 0"),
    "alias above the maximum": _fault(0x94, "s5 c5", "30 07 0001 'a' 03 23 000b", "the maximum is 10"),
    "topic with +": _fault(MALFORMED, "s45 c45", "30 06 0003 'a/+' 00", "PUBLISH: the topic 'a/+' has"),
    "topic with #": _fault(
        MALFORMED, "s45 c45", "30 04 0001 '#' 00", "PUBLISH: the topic '#' has a wildcard"
    ),
    "topic with U+0000": _fault(MALFORMED, "s45 c45", "30 06 0003 'a' 00 'b' 00", "the topic has the char"),
    "topic with a surrogate": _fault(MALFORMED, "s45 c45", "30 06 0003 eda080 00", "the topic is not UTF-8"),
    "topic of an overlong form": _fault(MALFORMED, "s45 c45", "30 05 0002 c0af 00", "the topic is not UTF-8"),
    "topic cut off": _fault(MALFORMED, "s45 c45", "30 04 0003 'ab'", "the topic is cut off"),
    "topic length cut off": _fault(MALFORMED, "s45 c45", "30 01 00", "the topic is cut off"),
    "nothing": _fault(MALFORMED, "s45 c45", "30 00", "PUBLISH: the topic is cut off"),
    "no packet identifier": _fault(MALFORMED, "s45 c45", "32 04 0001 'a' 01", "the packet identifier is cut"),
    "packet identifier 0": _fault(
        ERROR, "s45 c45", "32 06 0001 'a' 0000 00", "PUBLISH: the packet identifier"
    ),
    "no property length": _fault(MALFORMED, "s5 c5", "30 03 0001 'a'", "PUBLISH: the property length is cut"),
    "property length over four bytes": _fault(
        MALFORMED, "s5 c5", "30 08 0001 'a' 80808080 00", "the property length has more than four bytes"
    ),
    "property length too long": _fault(
        MALFORMED, "s5 c5", "30 05 0001 'a' 8000", "the property length has more bytes than its value needs"
    ),
    "properties cut off": _fault(MALFORMED, "s5 c5", "30 06 0001 'a' 03 01 01", "the properties are cut off"),
    "subscription identifier of a client": _fault(
        ERROR, "s5", "30 06 0001 'a' 02 0b 01", "a client has sent a Subscription Identifier"
    ),
    "response topic with a wildcard": _fault(
        ERROR, "s5 c5", "30 08 0001 'a' 04 08 0001 '#'", "property Response Topic '#' has a wildcard"
    ),
    "response topic that is not UTF-8": _fault(
        MALFORMED, "s5 c5", "30 08 0001 'a' 04 08 0001 ff", "property Response Topic is not UTF-8"
    ),
    "content type that is not UTF-8": _fault(
        MALFORMED, "s5 c5", "30 08 0001 'a' 04 03 0001 ff", "property Content Type is not UTF-8"
    ),
    "user property that is not UTF-8": _fault(
        MALFORMED, "s5 c5", "30 0b 0001 'a' 07 26 0001 'a' 0001 ff", "property User Property is not UTF-8"
    ),
    "subscription identifier 0": _fault(
        ERROR, "c5", "30 06 0001 'a' 02 0b 00", "property Subscription Identifier is 0"
    ),
    "payload format 2": _fault(
        ERROR, "s5 c5", "30 06 0001 'a' 02 01 02", "property Payload Format Indicator"
    ),
    # Acknowledgements.
    "acknowledgement of 0": _fault(ERROR, "s45 c45", "40 02 0000", "PUBACK: the packet identifier is 0"),
    "acknowledgement cut off": _fault(MALFORMED, "s45 c45", "70 01 00", "PUBCOMP: the packet identifier is"),
    "acknowledgement too long": _fault(
        MALFORMED, "s4 c4", "50 03 0001 00", "PUBREC: 1 bytes behind the last"
    ),
    "unknown reason": _fault(ERROR, "s5 c5", "40 03 0001 92", "PUBACK: reason code 0x92 is not allowed"),
    "unknown reason of PUBREL": _fault(ERROR, "s5 c5", "62 03 0001 10", "PUBREL: reason code 0x10 is not"),
    "bytes behind the properties": _fault(
        MALFORMED, "s5 c5", "40 05 0001 00 00 00", "PUBACK: 1 bytes behind"
    ),
    "reason string that is not UTF-8": _fault(
        MALFORMED, "s5 c5", "40 08 0001 00 04 1f 0001 ff", "property Reason String is not UTF-8"
    ),
    # SUBSCRIBE and UNSUBSCRIBE.
    "no topic filter": _fault(ERROR, "s4", "82 02 0001", "SUBSCRIBE: no topic filter"),
    "no topic filter in 5": _fault(ERROR, "s5", "82 03 0001 00", "SUBSCRIBE: no topic filter"),
    "no topic filter in UNSUBSCRIBE": _fault(ERROR, "s4", "a2 02 0001", "UNSUBSCRIBE: no topic filter"),
    "no topic filter in UNSUBSCRIBE of 5": _fault(
        ERROR, "s5", "a2 03 0001 00", "UNSUBSCRIBE: no topic filter"
    ),
    "SUBSCRIBE 0": _fault(ERROR, "s4", "82 06 0000 0001 'a' 00", "SUBSCRIBE: the packet identifier is 0"),
    "UNSUBSCRIBE 0": _fault(ERROR, "s4", "a2 05 0000 0001 'a'", "UNSUBSCRIBE: the packet identifier is 0"),
    "empty topic filter": _fault(MALFORMED, "s4", "82 05 0001 0000 00", "a topic filter is empty"),
    "topic filter cut off": _fault(MALFORMED, "s4", "82 05 0001 0002 'a'", "a topic filter is cut off"),
    "no options": _fault(MALFORMED, "s4", "82 05 0001 0001 'a'", "the subscription options is cut off"),
    "topic filter that is not UTF-8": _fault(
        MALFORMED, "s4", "82 06 0001 0001 80 00", "a topic filter is not"
    ),
    "topic filter of UNSUBSCRIBE that is not UTF-8": _fault(
        MALFORMED, "s4", "a2 05 0001 0001 80", "UNSUBSCRIBE: a topic filter is not UTF-8"
    ),
    "topic filter of 5 that is not UTF-8": _fault(
        MALFORMED, "s5", "82 07 0001 00 0001 80 00", "SUBSCRIBE: a topic filter is not UTF-8"
    ),
    "topic filter of UNSUBSCRIBE in 5 that is not UTF-8": _fault(
        MALFORMED, "s5", "a2 06 0001 00 0001 80", "UNSUBSCRIBE: a topic filter is not UTF-8"
    ),
    "+ in a level": _fault(MALFORMED, "s4", "82 07 0001 0002 'a+' 00", "'a+' has a wildcard beside other"),
    "# in a level": _fault(MALFORMED, "s4", "82 09 0001 0004 'a/b#' 00", "'a/b#' has a wildcard beside"),
    "# that is not last": _fault(MALFORMED, "s4", "82 08 0001 0003 '#/a' 00", "'#/a' has a wildcard beside"),
    "# in UNSUBSCRIBE": _fault(MALFORMED, "s5", "a2 08 0001 00 0003 '#/a'", "UNSUBSCRIBE: a topic filter"),
    "options of 3.1.1": _fault(MALFORMED, "s4", "82 06 0001 0001 'a' 04", "reserved bits are set"),
    "reserved options": _fault(MALFORMED, "s5", "82 07 0001 00 0001 'a' 40", "reserved bits are set"),
    "maximum QoS 3": _fault(MALFORMED, "s4", "82 06 0001 0001 'a' 03", "the maximum QoS is 3"),
    "maximum QoS 3 in 5": _fault(ERROR, "s5", "82 07 0001 00 0001 'a' 03", "the maximum QoS is 3"),
    "retain handling 3": _fault(ERROR, "s5", "82 07 0001 00 0001 'a' 30", "the retain handling is 3"),
    "no local on a shared subscription": _fault(
        ERROR, "s5", "82 10 0001 00 000a '$share/n/a' 04", "No Local on a shared subscription"
    ),
    "share without a name": _fault(
        MALFORMED, "s5", "82 0f 0001 00 0009 '$share//a' 00", "'$share//a' has no share name"
    ),
    "share without a filter": _fault(
        MALFORMED, "s5", "82 0e 0001 00 0008 '$share/n' 00", "'$share/n' has no topic filter"
    ),
    "share with an empty filter": _fault(
        MALFORMED, "s5", "82 0f 0001 00 0009 '$share/n/' 00", "'$share/n/' has no topic filter"
    ),
    "share with a wildcard": _fault(
        MALFORMED, "s5", "82 10 0001 00 000a '$share/+/a' 00", "has a wildcard in its share name"
    ),
    "share with a wrong filter": _fault(
        MALFORMED, "s5", "82 11 0001 00 000b '$share/n/a#' 00", "a topic filter 'a#' has a wildcard"
    ),
    "two subscription identifiers": _fault(
        ERROR,
        "s5",
        "82 0b 0001 04 0b 01 0b 02 0001 'a' 00",
        "Subscription Identifier is there more than once",
    ),
    "subscription identifier of five bytes": _fault(
        MALFORMED, "s5", "82 0d 0001 06 0b 8080808001 0001 'a' 00", "has more than four bytes"
    ),
    # SUBACK and UNSUBACK.
    "SUBACK without codes": _fault(ERROR, "c4", "90 02 0001", "SUBACK: no reason code"),
    "SUBACK with 3": _fault(ERROR, "c4", "90 03 0001 03", "SUBACK: reason code 0x03 is not allowed"),
    "SUBACK of 3.1.1 with a code of 5": _fault(ERROR, "c4", "90 03 0001 87", "SUBACK: return code 0x87 is"),
    "SUBACK of 5 with 3": _fault(ERROR, "c5", "90 04 0001 00 03", "SUBACK: reason code 0x03 is not allowed"),
    "UNSUBACK with codes in 3.1.1": _fault(MALFORMED, "c4", "b0 03 0001 00", "UNSUBACK: 1 bytes behind"),
    "UNSUBACK without codes in 5": _fault(ERROR, "c5", "b0 03 0001 00", "UNSUBACK: no reason code"),
    "UNSUBACK with 1": _fault(ERROR, "c5", "b0 04 0001 00 01", "UNSUBACK: reason code 0x01 is not allowed"),
    # The others.
    "PINGREQ with a body": _fault(MALFORMED, "s45", "c0 01 00", "PINGREQ: 1 bytes behind the last field"),
    "PINGRESP with a body": _fault(MALFORMED, "c45", "d0 01 00", "PINGRESP: 1 bytes behind the last field"),
    "DISCONNECT with a body": _fault(MALFORMED, "s4", "e0 01 00", "DISCONNECT: 1 bytes behind"),
    "DISCONNECT with an unknown reason": _fault(ERROR, "s5", "e0 01 01", "DISCONNECT: reason code 0x01"),
    "session expiry from a server": _fault(
        ERROR, "c5", "e0 07 00 05 11 00000000", "DISCONNECT: a server has sent a Session Expiry Interval"
    ),
    "AUTH with an unknown reason": _fault(ERROR, "s5 c5", "f0 02 80 00", "AUTH: reason code 0x80"),
    "AUTH without a method": _fault(ERROR, "s5 c5", "f0 02 18 00", "AUTH: no Authentication Method"),
    "unknown property": _fault(MALFORMED, "s5", "e0 04 00 02 7f 00", "property 0x7f is not allowed"),
    "property of another packet": _fault(
        MALFORMED, "s5", "e0 04 00 02 01 00", "DISCONNECT: property Payload Format Indicator is not allowed"
    ),
    "property identifier in two bytes": _fault(
        MALFORMED, "s5", "e0 05 00 03 9100 00", "a property identifier has more bytes than its value needs"
    ),
    "property cut off by the properties": _fault(
        MALFORMED, "s5", "e0 07 00 04 11 00000000", "property Session Expiry Interval is cut off"
    ),
}


def _fault_of(parser: Parser, chunks: list[bytes]) -> PacketFault | None:
    try:
        for chunk in chunks:
            parser.receive_data(chunk)
    except PacketFault as fault:
        return fault
    return None


def _receivers(fault: Fault) -> list[Parser]:
    found = []
    for word in fault.receiver.split(" "):
        make = fresh if word.endswith("first") else opened
        side = "server" if word[0] == "s" else "client"
        found += [make(side, version, topic_alias_maximum=10) for version in (4, 5) if str(version) in word]
    return found


@for_each("fault", FAULTS.values(), ids=FAULTS)
def test_what_is_refused(fault: Fault) -> None:
    receivers = _receivers(fault)
    assert receivers
    for parser in receivers:
        with pytest.raises(PacketFault) as caught:
            parser.receive_data(fault.data)
        assert caught.value.reason_code == fault.reason
        assert fault.words in str(caught.value)


@for_each("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_in_single_bytes_is_the_same(fault: Fault) -> None:
    for parser in _receivers(fault):
        found = _fault_of(parser, [bytes((byte,)) for byte in fault.data])
        assert found is not None
        assert found.reason_code == fault.reason


@pytest.mark.parametrize("version", [4, 5])
def test_what_came_before_the_fault_counts_as_received(version: int) -> None:
    parser = opened("server", version)
    good = bytes.fromhex("c000") + b"\x32\x06\0\1a\0\1\0" * 5
    with pytest.raises(PacketFault, match="packet identifier is 0") as caught:
        parser.receive_data(good + b"\x32\x06\0\1a\0\0\0" + good)
    assert plain(caught.value.packets) == plain(opened("server", version).receive_data(good))
    assert len(plain(caught.value.packets)) == 6


@pytest.mark.parametrize("version", [4, 5])
def test_acknowledgements_before_one_of_0_count_as_received(version: int) -> None:
    with pytest.raises(PacketFault, match="PUBACK: the packet identifier is 0") as caught:
        opened("server", version).receive_data(b"\x40\2\0\1" * 20 + b"\x40\2\0\0")
    assert [list(packet.ids) for packet in caught.value.packets] == [[1] * 20]


def test_each_packet_is_allowed_from_one_side_or_both() -> None:
    for kind in PacketType:
        data = bytes((kind << 4 | FLAGS.get(kind, 0), 0))
        for side, theirs in (("server", FROM_CLIENT), ("client", FROM_SERVER)):
            with_body = kind in theirs - {PacketType.CONNECT, PacketType.CONNACK}
            text = str(_fault_of(opened(side, 5), [data]))
            assert ("does not send it" in text or "a second" in text) != with_body


@for_each("kind", FLAGS, ids=lambda kind: kind.name)
def test_flags_of_every_packet(kind: PacketType) -> None:
    """Table 2-2: the flags of all packets but PUBLISH are fixed."""
    side: Side = "server" if kind in FROM_CLIENT else "client"
    make = fresh if kind in (PacketType.CONNECT, PacketType.CONNACK) else opened
    for flags in set(range(16)) - {2 if kind.name in ("PUBREL", "SUBSCRIBE", "UNSUBSCRIBE") else 0}:
        with pytest.raises(PacketFault, match=f"{kind.name}: the flags are {flags:#x}") as caught:
            make(side, 5).receive_data(bytes((kind << 4 | flags,)))
        assert caught.value.reason_code == MALFORMED


@pytest.mark.parametrize(
    "kind", [kind for kind in PacketType if REASONS_OF[kind]], ids=lambda kind: kind.name
)
def test_reason_codes_of_every_packet(kind: PacketType) -> None:
    """A packet has the reason codes of its row in table 2-6 and no others."""
    before, behind = {
        PacketType.CONNACK: (b"\0", b"\0"),
        PacketType.SUBACK: (b"\0\1\0", b""),
        PacketType.UNSUBACK: (b"\0\1\0", b""),
        PacketType.DISCONNECT: (b"", b""),
        PacketType.AUTH: (b"", b"\4\x15\0\1m"),
    }.get(kind, (b"\0\1", b""))
    side: Side = "client" if kind in FROM_SERVER else "server"
    for code in range(256):
        parser = (fresh if kind is PacketType.CONNACK else opened)(side, 5)
        body = before + bytes((code,)) + behind
        fault = _fault_of(parser, [bytes((kind << 4 | FLAGS[kind], len(body))) + body])
        assert (fault is None) == (code in REASONS_OF[kind])
        if fault is not None:
            assert fault.reason_code == ERROR
            assert f"{kind.name}: reason code {code:#04x} is not allowed" in str(fault)


@pytest.mark.parametrize("side", ["server", "client"])
def test_all_aliases_up_to_the_maximum(side: Side) -> None:
    parser = opened(side, 5, topic_alias_maximum=300)
    for alias in (1, 2, 255, 256, 300):
        (packet,) = parser.receive_data(b"\x30\x07\0\1a\3\x23" + alias.to_bytes(2, "big"))
        assert plain([packet])[0][1] == "a"
    with pytest.raises(PacketFault, match="topic alias 301; the maximum is 300"):
        parser.receive_data(b"\x30\x07\0\1a\3\x23\1\x2d")


def test_an_alias_without_a_maximum() -> None:
    with pytest.raises(PacketFault, match="topic alias 1; the maximum is 0") as caught:
        opened("server", 5).receive_data(b"\x30\x07\0\1a\3\x23\0\1")
    assert caught.value.reason_code == ReasonCode.TOPIC_ALIAS_INVALID


@for_each("row", TABLE, ids=lambda row: row.name)
def test_a_property_twice(row: Property) -> None:
    """Table 2-4, and [MQTT-3.1.2-…] for each: all but User Property and a server's Subscription Identifier."""
    values = {
        "byte": b"\1",
        "two bytes": b"\0\1",
        "four bytes": b"\0\0\0\1",
        "variable": b"\1",
        "text": b"\0\1r",
        "binary": b"\0\1\0",
        "pair": b"\0\1a\0\1b",
    }
    one = bytes((row.identifier,)) + values[row.type]
    method = b"\x15\0\1m" if row.identifier == 0x16 else b""
    for count, repeats in ((1, True), (2, False)):
        block = method + one * count
        properties = bytes((len(block),)) + block
        for kind in row.packets:
            allowed = repeats or kind in row.repeats
            parser, data = _with_properties(kind, properties)
            if allowed:
                assert len(parser.receive_data(data)) == 1
            else:
                with pytest.raises(
                    PacketFault, match=f"property {row.name} is there more than once"
                ) as caught:
                    parser.receive_data(data)
                assert caught.value.reason_code == ERROR


@for_each("row", TABLE, ids=lambda row: row.name)
def test_a_property_in_a_packet_that_must_not_have_it(row: Property) -> None:
    """Table 2-4."""
    block = bytes((row.identifier,)) + b"\0\1a\0\1b"
    for kind in {WILL, *PacketType} - {PacketType.PINGREQ, PacketType.PINGRESP} - row.packets:
        parser, data = _with_properties(kind, bytes((len(block),)) + block)
        with pytest.raises(PacketFault, match=f"property {row.name} is not allowed in it") as caught:
            parser.receive_data(data)
        assert caught.value.reason_code == MALFORMED


def _with_properties(kind: int, properties: bytes) -> tuple[Parser, bytes]:
    """Return a parser, and the bytes of a packet with these properties."""
    connect = b"\0\4MQTT\5\2\0\0"
    body = {
        WILL: b"\0\4MQTT\5\6\0\0\0\0\1a" + properties + b"\0\1w\0\0",
        PacketType.CONNECT: connect + properties + b"\0\1a",
        PacketType.CONNACK: b"\0\0" + properties,
        PacketType.PUBLISH: b"\0\1a" + properties,
        PacketType.SUBSCRIBE: b"\0\1" + properties + b"\0\1a\0",
        PacketType.SUBACK: b"\0\1" + properties + b"\0",
        PacketType.UNSUBSCRIBE: b"\0\1" + properties + b"\0\1a",
        PacketType.UNSUBACK: b"\0\1" + properties + b"\0",
        PacketType.DISCONNECT: b"\0" + properties,
        PacketType.AUTH: b"\0" + (properties if properties[1:2] == b"\x15" else _with_method(properties)),
    }.get(kind, b"\0\1\0" + properties)
    number = kind or PacketType.CONNECT
    first = bytes((number << 4 | FLAGS.get(PacketType(number), 0), len(body)))
    # A server's Subscription Identifiers may repeat.
    client = number in (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PUBLISH)
    make = fresh if number in (PacketType.CONNECT, PacketType.CONNACK) else opened
    return make("client" if client else "server", 5, topic_alias_maximum=10), first + body


def _with_method(properties: bytes) -> bytes:
    return bytes((properties[0] + 4,)) + properties[1:] + b"\x15\0\1m"


@pytest.mark.parametrize("kind", [PacketType.CONNECT, PacketType.CONNACK])
@pytest.mark.parametrize("octets", ["21 0000", "27 00000000"])
def test_limits_of_zero(kind: PacketType, octets: str) -> None:
    block = bytes.fromhex(octets)
    parser, data = _with_properties(kind, bytes((len(block),)) + block)
    with pytest.raises(PacketFault, match=r"property (Receive Maximum|Maximum Packet Size) is 0") as caught:
        parser.receive_data(data)
    assert caught.value.reason_code == ERROR


@for_each("row", [row for row in TABLE if row.type == "byte"], ids=lambda row: row.name)
def test_bytes_that_are_neither_0_nor_1(row: Property) -> None:
    kind = max(row.packets)
    parser, data = _with_properties(kind, bytes((2, row.identifier, 2)))
    with pytest.raises(PacketFault, match=f"property {row.name} is 2") as caught:
        parser.receive_data(data)
    assert caught.value.reason_code == ERROR


@pytest.mark.parametrize("version", [4, 5])
def test_a_packet_that_is_too_large_is_refused_before_it_has_come(version: int) -> None:
    parser = opened("server", version, max_packet_bytes=100)
    topic = b"\0\1a" if version == 4 else b"\0\1a\0"
    largest = b"\x30\x62" + topic + bytes(98 - len(topic))
    assert len(plain(parser.receive_data(largest * 3))) == 3
    assert parser.receive_data(b"\x30") == []
    with pytest.raises(PacketFault, match="PUBLISH: a packet of 101 bytes; the maximum is 100") as caught:
        parser.receive_data(b"\x63")
    assert caught.value.reason_code == ReasonCode.PACKET_TOO_LARGE


def test_a_large_packet_behind_small_ones_is_refused() -> None:
    parser = opened("server", 4, max_packet_bytes=50)
    small, large = b"\x30\x05\0\1ahi", b"\x30\x40\0\1a" + bytes(61)
    with pytest.raises(PacketFault, match="a packet of 66 bytes") as caught:
        parser.receive_data(small * 40 + large)
    assert len(plain(caught.value.packets)) == 40


@pytest.mark.parametrize("version", [4, 5])
def test_what_the_peer_was_told_about_qos_and_retain(version: int) -> None:
    end = b"\0" if version == 5 else b""
    parser = opened("server", version, maximum_qos=1, retain_available=False)
    qos1 = b"\x32\x06" + b"\0\1a\0\1" + (end or b"x")
    assert len(parser.receive_data(qos1)) == 1
    with pytest.raises(PacketFault, match="PUBLISH: QoS 2; the maximum is 1") as caught:
        parser.receive_data(b"\x34" + qos1[1:])
    assert caught.value.reason_code == ReasonCode.QOS_NOT_SUPPORTED
    parser = opened("server", version, retain_available=False)
    with pytest.raises(PacketFault, match="PUBLISH: a retained message") as caught:
        parser.receive_data(b"\x31\x04\0\1a\0")
    assert caught.value.reason_code == ReasonCode.RETAIN_NOT_SUPPORTED


def test_an_unknown_level_is_refused_in_the_nearest_version() -> None:
    for level, version, answer in (
        (0, 4, "20020001"),
        (3, 4, "20020001"),
        (6, 5, "2003008400"),
        (0x80, 4, "20020001"),
        (0x85, 5, "2003008400"),
    ):
        parser = fresh("server", 0)
        with pytest.raises(PacketFault) as caught:
            parser.receive_data(b"\x10\x0d\0\4MQTT" + bytes((level,)) + b"\2\0\0\0\1a")
        assert parser.version == version
        assert encode(Connack(reason_code=caught.value.reason_code), parser.version).hex() == answer


def test_return_codes() -> None:
    """Each return code of table 3.1 can be reached; other reasons close without a CONNACK."""
    reached = {return_code(code) for code in REASONS_OF[PacketType.CONNACK]}
    assert reached == {None, *ReturnCode}
    assert return_code(ReasonCode.MALFORMED_PACKET) is None


@pytest.mark.parametrize("side,version", [("server", 4), ("server", 5), ("client", 0)])
def test_a_parser_needs_the_version_of_a_client(side: Side, version: int) -> None:
    with pytest.raises(LocalProtocolError):
        Parser(side, version)


@for_each("example", EXAMPLES, ids=lambda example: example.name)
def test_a_packet_that_is_cut_off_is_a_fault_of_this_packet_or_another_valid_one(example: Example) -> None:
    data = example.data
    if data[1] in range(1, 0x80):
        make = fresh if example.name.startswith("conn") else opened
        parser = make(example.sides[0], example.version, topic_alias_maximum=10)
        short = data[:1] + bytes((data[1] - 1,)) + data[2:-1]
        fault = _fault_of(parser, [short])
        assert not parser.rest
        assert fault is None or example.packet.kind.name in str(fault)
