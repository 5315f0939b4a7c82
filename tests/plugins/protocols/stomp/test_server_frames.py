"""A server's frames as a client reads them, and a client's frames as it writes them, octet by octet."""

from __future__ import annotations

import pytest

from plugins.protocols.stomp.errors import CannotCarry
from plugins.protocols.stomp.frame_reader import FrameReader
from plugins.protocols.stomp.frames import Frames, encode_acknowledgements
from plugins.protocols.stomp.message_template import COPY_LIMIT
from plugins.protocols.stomp.send_template import SendTemplate
from plugins.protocols.stomp.versions import Version
from tests.plugins.protocols.stomp.reading import read

MESSAGES = (
    b"MESSAGE\nsubscription:s\ndestination:/queue/q\nmessage-id:T@1\nack:A@1\nx:y\ncontent-length:1\n\n1\0"
    b"MESSAGE\nsubscription:s\ndestination:/queue/q\nmessage-id:T@2\nack:A@2\nx:y\ncontent-length:2\n\n22\0"
)


def reader_of(version: Version = Version.V1_2) -> FrameReader:
    reader = FrameReader(of_server=True)
    reader.version = version
    return reader


def one(data: bytes, version: Version = Version.V1_2) -> Frames:
    (found,) = read(reader_of(version), [data])
    return found


def test_messages_that_differ_in_what_names_them_are_one_batch() -> None:
    found = one(MESSAGES)
    assert (found.command, found.bodies) == ("MESSAGE", [b"1", b"22"])
    assert found.receipts == [(1, "A@1"), (2, "A@2")]
    assert dict(found.headers) == {"subscription": "s", "destination": "/queue/q", "x": "y"}


@pytest.mark.parametrize("version", [Version.V1_0, Version.V1_1])
def test_before_1_2_a_message_is_acknowledged_by_its_message_id(version: Version) -> None:
    assert one(MESSAGES, version).receipts == [(1, "T@1"), (2, "T@2")]


def test_a_message_may_come_octet_by_octet() -> None:
    found = read(reader_of(), [MESSAGES[at : at + 1] for at in range(len(MESSAGES))])
    assert [body for each in found for body in each.bodies] == [b"1", b"22"]
    assert [name for each in found for _, name in each.receipts] == ["A@1", "A@2"]


def test_escapes_in_what_names_a_message_are_undone() -> None:
    found = one(b"MESSAGE\nmessage-id:1\nack:a\\cb\n\n\0MESSAGE\nmessage-id:2\nack:c\n\n\0")
    assert [name for _, name in found.receipts] == ["a:b", "c"]


def test_the_receipt_of_a_publisher_that_a_server_passes_on_divides_no_batch() -> None:
    data = b"".join(b"MESSAGE\nmessage-id:%d\nack:%d\nreceipt:r%d\n\n\0" % (n, n, n) for n in range(3))
    assert [name for _, name in one(data).receipts] == ["0", "1", "2"]


def test_receipts_are_one_batch() -> None:
    found = one(b"RECEIPT\nreceipt-id:7\n\n\0\nRECEIPT\nreceipt-id:message-8\n\n\0")
    assert found.command == "RECEIPT"
    assert [receipt for _, receipt in found.receipts] == ["7", "message-8"]


def test_an_error_keeps_its_headers() -> None:
    found = one(b"ERROR\nreceipt-id:7\nmessage:bad\nmessage-id:m\ncontent-length:4\n\nbody\0")
    assert dict(found.headers) == {"receipt-id": "7", "message": "bad", "message-id": "m"}
    assert (found.bodies, found.receipts) == ([b"body"], [])


def test_reading_stops_behind_connected_for_the_version_to_be_set() -> None:
    reader = FrameReader(of_server=True)
    reader.feed(b"CONNECTED\nversion:1.2\nserver:a\\b\n\n\0MESSAGE\nack:1\nx:a\\cb\n\n\0")
    (connected,) = reader.read()
    assert dict(connected.headers) == {"version": "1.2", "server": "a\\b"}
    reader.version = Version.V1_2
    (message,) = reader.read()
    assert message.headers["x"] == "a:b"


def test_a_client_that_is_read_as_such_has_no_such_frames_together() -> None:
    reader = FrameReader()
    reader.version = Version.V1_2
    assert len(read(reader, [MESSAGES])) == 2


def test_the_last_frame_of_a_batch_asks_for_a_receipt() -> None:
    template = SendTemplate([("destination", "/queue/50%"), ("a:b", "c\nd")], Version.V1_2)
    assert b"".join(template.encode(7, [b"x", b"", b"a\0b"], 4, each=False)) == (
        b"SEND\ndestination:/queue/50%\na\\cb:c\\nd\ncontent-length:1\n\nx\0"
        b"SEND\ndestination:/queue/50%\na\\cb:c\\nd\ncontent-length:0\n\n\0"
        b"SEND\ndestination:/queue/50%\na\\cb:c\\nd\nreceipt:9\ncontent-length:3\n\na\0b\0"
    )


def test_each_frame_may_ask_for_a_receipt() -> None:
    template = SendTemplate([("destination", "q")], Version.V1_1)
    assert b"".join(template.encode(7, [b"x", b"y"], 2, each=True)) == (
        b"SEND\ndestination:q\nreceipt:7\ncontent-length:1\n\nx\0"
        b"SEND\ndestination:q\nreceipt:8\ncontent-length:1\n\ny\0"
    )


def test_large_bodies_are_not_copied() -> None:
    body = b"x" * (COPY_LIMIT + 1)
    template = SendTemplate([("destination", "q")], Version.V1_2)
    assert any(part is body for part in template.encode(1, [body], len(body), each=True))


def test_what_has_no_form_is_refused_before_anything_is_encoded() -> None:
    with pytest.raises(CannotCarry):
        SendTemplate([("destination", "q"), ("a:b", "c")], Version.V1_0)


@pytest.mark.parametrize(
    "version, expected",
    [
        (Version.V1_0, b"ACK\nmessage-id:a:b\n\n\0ACK\nmessage-id:2\n\n\0"),
        (
            Version.V1_1,
            b"ACK\nmessage-id:a\\cb\nsubscription:s\\cs\n\n\0ACK\nmessage-id:2\nsubscription:s\\cs\n\n\0",
        ),
        (Version.V1_2, b"ACK\nid:a\\cb\n\n\0ACK\nid:2\n\n\0"),
    ],
)
def test_acknowledgements_in_octets(version: Version, expected: bytes) -> None:
    assert encode_acknowledgements("ACK", ["a:b", "2"], "s:s", version) == expected


def test_a_refused_message_does_not_return_to_its_queue() -> None:
    frame = encode_acknowledgements("NACK", ["1"], "s", Version.V1_2)
    assert frame == b"NACK\nid:1\nrequeue:false\n\n\0"
