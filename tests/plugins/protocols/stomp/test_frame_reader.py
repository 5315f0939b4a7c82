"""Frames from octets: golden ones, any chunks, any octets, limits, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.protocols.stomp.errors import CannotCarry, Fault
from plugins.protocols.stomp.frame_reader import FrameReader
from plugins.protocols.stomp.frames import UNESCAPED, encode_frame
from plugins.protocols.stomp.versions import Version
from tests.notes import for_each
from tests.plugins.protocols.stomp.reading import Plain, cut, plain, read, reader_of
from tests.seeds import examples

V1_0, V1_1, V1_2 = Version


def one(data: bytes, version: Version = V1_2, **limits: int) -> Plain:
    (frame,) = plain(read(reader_of(version, **limits), [data]))
    return frame


def fault_of(data: bytes, version: Version = V1_2, **limits: int) -> Fault:
    with pytest.raises(Fault) as caught:
        read(reader_of(version, **limits), [data])
    return caught.value


# The specification's own examples, as octets.
GOLDEN: dict[bytes, Plain] = {
    b"CONNECT\naccept-version:1.2\nhost:stomp.github.org\n\n\0": (
        "CONNECT",
        {"accept-version": "1.2", "host": "stomp.github.org"},
        b"",
        None,
        None,
    ),
    b"SEND\ndestination:/queue/a\ncontent-type:text/plain\n\nhello queue a\n\0": (
        "SEND",
        {"destination": "/queue/a", "content-type": "text/plain"},
        b"hello queue a\n",
        None,
        None,
    ),
    b"SEND\ndestination:/queue/a\nreceipt:message-12345\n\nhello queue a\0": (
        "SEND",
        {"destination": "/queue/a"},
        b"hello queue a",
        "message-12345",
        None,
    ),
    b"SUBSCRIBE\nid:0\ndestination:/queue/foo\nack:client\n\n\0": (
        "SUBSCRIBE",
        {"id": "0", "destination": "/queue/foo", "ack": "client"},
        b"",
        None,
        None,
    ),
    b"ACK\nid:12345\ntransaction:tx1\n\n\0": ("ACK", {}, b"", None, "tx1"),
    b"BEGIN\ntransaction:tx1\n\n\0": ("BEGIN", {}, b"", None, "tx1"),
    b"DISCONNECT\nreceipt:77\n\n\0": ("DISCONNECT", {}, b"", "77", None),
    b"MESSAGE\nsubscription:0\nmessage-id:007\ndestination:/queue/a\ncontent-type:text/plain\n\nhello queue a\0": (
        "MESSAGE",
        {
            "subscription": "0",
            "message-id": "007",
            "destination": "/queue/a",
            "content-type": "text/plain",
        },
        b"hello queue a",
        None,
        None,
    ),
    b"RECEIPT\nreceipt-id:message-12345\n\n\0": ("RECEIPT", {"receipt-id": "message-12345"}, b"", None, None),
    b"ERROR\ncontent-length:3\nmessage:malformed frame received\n\nT\0\n\0": (
        "ERROR",
        {"message": "malformed frame received"},
        b"T\0\n",
        None,
        None,
    ),
}


@for_each("data", GOLDEN, ids=lambda data: data[:12].decode().strip())
def test_an_example_of_the_specification_is_read(data: bytes) -> None:
    assert one(data) == GOLDEN[data]


@for_each("data", GOLDEN, ids=lambda data: data[:12].decode().strip())
def test_a_frame_may_come_octet_by_octet(data: bytes) -> None:
    reader = reader_of()
    assert plain(read(reader, [data[at : at + 1] for at in range(len(data))])) == [GOLDEN[data]]
    assert reader.incomplete_bytes == 0


def test_lines_may_end_with_cr_lf() -> None:
    assert one(b"SEND\r\ndestination:/queue/a\r\nreceipt:1\r\ncontent-length:2\r\n\r\n\r\n\0") == (
        "SEND",
        {"destination": "/queue/a"},
        b"\r\n",
        "1",
        None,
    )


def test_ends_of_lines_between_frames_are_heart_beats() -> None:
    found = read(
        reader_of(), [b"\n\r\n", b"\r", b"\nBEGIN\ntransaction:1\n\n\0\n\r\n\n", b"ABORT\n\n\0", b"\n"]
    )
    assert [each.command for each in found] == ["BEGIN", "ABORT"]


def test_of_repeated_headers_the_first_counts() -> None:
    data = b"MESSAGE\nfoo:World\nreceipt:1\nfoo:Hello\nreceipt:2\ncontent-length:1\ncontent-length:2\n\nx\0"
    assert one(data) == ("MESSAGE", {"foo": "World"}, b"x", "1", None)


@pytest.mark.parametrize("command", sorted(UNESCAPED))
def test_the_first_frame_is_not_trimmed(command: str) -> None:
    """Which version it asks for is not known yet; a passcode may begin with a space."""
    assert one(f"{command}\npasscode: secret\n\n\0".encode(), V1_0)[1] == {"passcode": " secret"}


def test_spaces_are_part_of_a_header_but_in_1_0() -> None:
    data = b"SEND\ndestination: /queue/a \nreceipt: 5\n\n\0"
    assert one(data) == ("SEND", {"destination": " /queue/a "}, b"", " 5", None)
    assert one(data, V1_1) == one(data)
    assert one(data, V1_0) == ("SEND", {"destination": "/queue/a "}, b"", "5", None)


@pytest.mark.parametrize(
    "version, escaped, meaning",
    [
        (V1_2, r"a\nb\rc\cd\\ne", "a\nb\rc:d\\ne"),
        (V1_1, r"a\nb\cd\\re", "a\nb:d\\re"),
        (V1_0, r"a\nb\rc\cd\\ne\t", r"a\nb\rc\cd\\ne\t"),
    ],
)
def test_escapes_by_version(version: Version, escaped: str, meaning: str) -> None:
    name = escaped.replace("a", "n", 1)
    data = f"SEND\n{name}:{escaped}\nreceipt:{escaped}\n\n\0".encode()
    assert one(data, version) == ("SEND", {meaning.replace("a", "n", 1): meaning}, b"", meaning, None)


@for_each("version, bad", [(V1_1, r"\r"), (V1_1, r"\t"), (V1_2, r"\t"), (V1_2, "\\")])
@for_each("line", ["a{}:b", "a:b{}", "receipt:b{}"])
def test_an_undefined_escape_is_a_fault(version: Version, bad: str, line: str) -> None:
    fault = fault_of(f"SEND\n{line.format(bad)}\n\n\0".encode(), version)
    assert fault.message == "Invalid escape"


@pytest.mark.parametrize("command", sorted(UNESCAPED))
def test_connect_and_connected_have_no_escapes(command: str) -> None:
    headers = {"login": r"a\tb\c", "receipt-id": "x:y"}
    data = encode_frame(command, headers.items(), V1_2)
    assert data == f"{command}\nlogin:a\\tb\\c\nreceipt-id:x:y\n\n\0".encode()
    assert one(data)[1] == headers


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_reading_stops_behind_connect_for_the_version_to_be_set(command: str) -> None:
    reader = FrameReader()
    reader.feed(f"{command}\naccept-version:1.2\n\n\0SEND\nx:\\r\n\n\0SEND\nx:\\r\n\n\0".encode())
    assert [each.command for each in reader.read()] == [command]
    reader.version = V1_2
    assert plain(reader.read()) == [("SEND", {"x": "\r"}, b"", None, None)] * 2
    assert reader.read() == []


def test_a_body_with_nul_needs_its_length() -> None:
    assert one(b"SEND\ncontent-length:3\n\na\0b\0")[2] == b"a\0b"
    assert fault_of(b"SEND\ncontent-length:1\n\nab\0").message == "Malformed frame"


@for_each(
    "data, message",
    [
        (b"SEND\nno colon\n\n\0", "Malformed frame"),
        (b"SEND\n:no name\n\n\0", "Malformed frame"),
        (b"SEND\ndestination:a\n\0", "Malformed frame"),
        (b"SEND\0", "Malformed frame"),
        (b"\rSEND\n\n\0", "Malformed frame"),
        (b"SEND\nx:\xff\n\n\0", "Malformed frame"),
        (b"SEND\nreceipt:\xff\n\n\0", "Malformed frame"),
        (b"SE\xffND\n\n\0", "Malformed frame"),
        (b"SEND\ncontent-length:x\n\n\0", "Invalid header"),
        (b"SEND\ncontent-length:-1\n\n\0", "Invalid header"),
        (b"SEND\ncontent-length:\n\n\0", "Invalid header"),
        ("SEND\ncontent-length:\u0663\n\n\0".encode(), "Invalid header"),
        (b"SEND\ncontent-length:" + b"9" * 5000 + b"\n\n\0", "Invalid header"),
    ],
)
def test_a_malformed_frame_is_a_fault(data: bytes, message: str) -> None:
    assert fault_of(data).message == message


def test_frames_before_a_fault_are_returned_first() -> None:
    reader = reader_of()
    reader.feed(b"BEGIN\ntransaction:1\n\n\0SEND\nbad\n\n\0BEGIN\n\n\0")
    assert [each.command for each in reader.read()] == ["BEGIN"]
    for _ in range(2):
        with pytest.raises(Fault):
            reader.read()
    reader.feed(b"BEGIN\n\n\0")
    with pytest.raises(Fault):
        reader.read()


def test_a_fault_names_the_receipt_of_its_frame() -> None:
    assert fault_of(b"SEND\nreceipt:7\ncontent-length:1\n\nab\0").receipt == "7"
    assert fault_of(b"SEND\nreceipt:7\ncontent-length:x\n\n\0").receipt == "7"
    assert fault_of(b"SEND\nreceipt:7\ncontent-length:9\n\n", body=8).receipt == "7"


def exceed_headers(more: int) -> bytes:
    return b"SEND\n" + b"".join(b"x%d:\n" % number for number in range(10 + more)) + b"\n\0"


LIMITS: dict[str, tuple[dict[str, int], bytes, bytes]] = {
    "headers": ({"headers": 10}, exceed_headers(0), exceed_headers(1)),
    "headers with own": (
        {"headers": 2},
        b"SEND\na:\nreceipt:\n\n\0",
        b"SEND\na:\nreceipt:\ncontent-length:0\n\n\0",
    ),
    "header_line": ({"header_line": 10}, b"SEND\na:12345678\n\n\0", b"SEND\na:123456789\n\n\0"),
    "command": ({"header_line": 4}, b"SEND\n\n\0", b"SENDS\n\n\0"),
    "receipt": ({"header_line": 10}, b"SEND\nreceipt:12\n\n\0", b"SEND\nreceipt:123\n\n\0"),
    "header_block": ({"header_block": 10}, b"SEND\na:b\n\n\0", b"SEND\na:bc\n\n\0"),
    "body": ({"body": 5}, b"SEND\n\n12345\0", b"SEND\n\n123456\0"),
    "body with length": ({"body": 5}, b"SEND\ncontent-length:5\n\n12345\0", b"SEND\ncontent-length:6\n\n"),
}


@for_each("what", LIMITS)
@for_each("octet_by_octet", [False, True])
def test_a_limit_holds(what: str, octet_by_octet: bool) -> None:
    limits, fits, exceeds = LIMITS[what]

    def chunks(data: bytes) -> list[bytes]:
        return [bytes((octet,)) for octet in data] if octet_by_octet else [data]

    assert len(read(reader_of(**limits), chunks(fits))) == 1
    with pytest.raises(Fault):
        read(reader_of(**limits), chunks(exceeds))


@pytest.mark.parametrize("start", [b"", b"SEND\n\n", b"SEND\nreceipt:"])
def test_what_has_no_end_is_given_up_at_the_limit(start: bytes) -> None:
    reader = reader_of(header_block=1000, body=1000)
    reader.feed(start)
    assert reader.read() == []
    with pytest.raises(Fault):
        read(reader, [b"a" * 100] * 12)
    assert reader.incomplete_bytes == 0


def test_a_repeated_limit_holds_for_a_block_like_the_last_one() -> None:
    reader = reader_of(header_line=20)
    assert len(read(reader, [b"SEND\nreceipt:1\n\n\0SEND\nreceipt:22\n\n\0"])) == 1
    with pytest.raises(Fault):
        read(reader, [b"SEND\nreceipt:" + b"3" * 13 + b"\n\n\0"])


# Batches


def send(number: int, *, receipt: bool = False, size: int = 5) -> bytes:
    line = b"receipt:%d\n" % number if receipt else b""
    return b"SEND\ndestination:/queue/a\n%bcontent-length:%d\n\n%b\0" % (line, size, b"x" * size)


def test_equal_header_blocks_are_one_batch_of_one_flow() -> None:
    reader = reader_of()
    first, *others = read(reader, [send(1) * 3])
    assert not others
    assert (len(first.bodies), first.size, first.width) == (3, 15, 5)
    (second,) = read(reader, [send(1)])
    assert second.flow is first.flow


def test_length_and_receipt_do_not_divide_a_batch() -> None:
    data = send(1) + send(2, receipt=True) + send(3, receipt=True, size=7) + send(4) + send(5, receipt=True)
    (frames,) = read(reader_of(), [data])
    assert [len(body) for body in frames.bodies] == [5, 5, 7, 5, 5]
    assert frames.receipts == [(2, "2"), (3, "3"), (5, "5")]
    assert (frames.size, frames.width) == (27, 0)


def test_frames_that_take_turns_keep_their_own_heads() -> None:
    """Both ways to recognise a header block have a hand in it: as a whole, and but for its values."""
    sizes = [5, 7, 5, 7, 5, 0, 5, 5, 7, 7, 5]
    data = b"".join(send(number, size=size) for number, size in enumerate(sizes))
    (frames,) = read(reader_of(), [data])
    assert [len(body) for body in frames.bodies] == sizes
    numbers = [1, 2, 1, 1, 2, 2, 3, 1]
    (frames,) = read(reader_of(), [b"".join(send(number, receipt=True) for number in numbers)])
    assert [receipt for _, receipt in frames.receipts] == [str(number) for number in numbers]


def test_a_transaction_divides_a_batch_of_one_flow() -> None:
    tx = b"SEND\ndestination:/queue/a\ntransaction:%d\n\n\0"
    found = read(reader_of(), [tx % 1 + tx % 1 + tx % 2 + b"SEND\ndestination:/queue/a\n\n\0"])
    assert [(each.transaction, len(each.bodies)) for each in found] == [("1", 2), ("2", 1), (None, 1)]
    assert len({each.flow for each in found}) == 1


def test_other_frames_come_one_by_one() -> None:
    assert len(read(reader_of(), [b"BEGIN\n\n\0" * 3])) == 3


@for_each("command", ["ACK", "NACK"])
@for_each("version, name", [(V1_0, "message-id"), (V1_1, "message-id"), (V1_2, "id")])
def test_acknowledgements_differ_in_the_message_that_they_name(
    command: str, version: Version, name: str
) -> None:
    data = b"".join(f"{command}\nx:y\n{name}:{each}\n\n\0".encode() for each in "abc")
    found = read(reader_of(version), [data, f"{command}\nx:y\nid:1\nmessage-id:2\n\n\0".encode()])
    last = "1" if version is V1_2 else "2"
    assert [name for each in found for name in each.acknowledged] == ["a", "b", "c", last]
    assert len({each.flow for each in found}) == 1


@pytest.mark.parametrize("version, name", [(V1_0, "message-id"), (V1_1, "message-id"), (V1_2, "id")])
def test_ack_frames_come_several_together(version: Version, name: str) -> None:
    """At most so many as are looked at in one step, however long they are; the last of a read may be alone."""
    names = [f"T_0@@session-x@@{number}" for number in range(500)]
    data = b"".join(f"ACK\n{name}:{each}\n\n\0".encode() for each in names)
    found = read(reader_of(version), [data])
    assert [name for each in found for name in each.acknowledged] == names
    assert len(found) <= 2


@pytest.mark.parametrize(
    "between",
    [
        b"SEND\ndestination:a\n\nbody\0",
        b"ACK\nid:b\n\nbody\0",
        b"ACK\nid:b\n\n\0\n",
        b"ACK\nid:b\nreceipt:r\n\n\0",
        b"ACK\nid:b\ntransaction:t\n\n\0",
        b"ACK\nid:b\nother:o\n\n\0",
        b"ACK\nid:b\\cc\n\n\0",
        b"ACK\nid:\n\n\0",
        b"ACK\nid:" + b"b" * 5000 + b"\n\n\0",
        b"NACK\nid:b\n\n\0",
    ],
)
def test_ack_frames_together_are_those_that_come_one_by_one(between: bytes) -> None:
    """What stands between them, and where they are cut, makes no difference."""
    ack = b"ACK\nid:%d\n\n\0"
    frames = [*[ack % number for number in range(3)], between, *[ack % number for number in range(3)]]
    data = b"".join(frames)
    alone = read(reader_of(), frames)
    names = [name for each in alone for name in each.acknowledged]
    for cuts in [(), *((place,) for place in range(0, len(data), 1 + len(data) // 200))]:
        together = read(reader_of(), cut(data, cuts))
        assert plain(together) == plain(alone)
        assert [name for each in together for name in each.acknowledged] == names


def test_other_frames_keep_a_header_id() -> None:
    assert one(b"SEND\nid:1\nmessage-id:2\n\n\0")[1] == {"id": "1", "message-id": "2"}


def test_there_is_a_bound_for_what_is_remembered() -> None:
    reader = reader_of()
    for number in range(3000):
        read(reader, [b"SEND\ndestination:/queue/%d\ncontent-length:0\n\n\0" % number])
    long = b"x" * 10_000
    for number in range(300):
        read(reader, [b"SEND\ndestination:/queue/%d%b\ncontent-length:0\n\n\0" % (number, long)])
    remembered = [table for table in vars(reader._blocks).values() if isinstance(table, dict)]
    assert len(remembered) == 2
    assert all(len(table) <= 256 and sum(map(len, table)) <= 1 << 20 for table in remembered)


# Any frames, any chunks, any octets

_TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]) | st.sampled_from(list("\\\n\r: nrc")),
    max_size=12,
)
_NAMES = _TEXTS.filter(lambda name: name not in ("", "receipt", "transaction", "content-length"))


@st.composite
def frames(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], bytes]:
    command = draw(st.sampled_from(["SEND", "MESSAGE", "SUBSCRIBE", "COMMIT", "ERROR"]))
    if draw(st.booleans()):
        # Alike but for the values of a single frame.
        receipt = draw(st.sampled_from(["1", "22", ""]))
        return "SEND", [("a", "b"), ("receipt", receipt)], draw(st.sampled_from([b"", b"x", b"yy\0"]))
    headers = draw(st.lists(st.tuples(_NAMES, _TEXTS), max_size=4, unique_by=lambda header: header[0]))
    body = draw(st.binary(max_size=30) | st.just(b"SEND\n\n\0"))
    for name in ("receipt", "transaction"):
        if draw(st.booleans()):
            headers.insert(draw(st.integers(0, len(headers))), (name, draw(_TEXTS)))
    return command, headers, body


@settings(max_examples=examples(300), deadline=None)
@given(
    version=st.sampled_from([V1_1, V1_2]),
    several=st.lists(frames(), max_size=5),
    places=st.lists(st.integers(0, 1000), max_size=8),
    order=st.lists(st.integers(0, 4), max_size=8),
    crlf=st.booleans(),
)
def test_what_is_written_is_read_however_it_is_cut(
    version: Version, several: list[Any], places: list[int], order: list[int], crlf: bool
) -> None:
    data = b""
    wanted = []
    for command, headers, body in [several[index] for index in order if index < len(several)]:
        try:
            frame = encode_frame(command, headers, version, body)
        except CannotCarry:
            assert version is V1_1
            continue
        if crlf:
            head, blank, rest = frame.partition(b"\n\n")
            frame = head.replace(b"\n", b"\r\n") + b"\r\n\r\n" + rest if blank else frame
        data += frame + b"\n"
        values = dict(headers)
        receipt, transaction = values.pop("receipt", None), values.pop("transaction", None)
        wanted.append((command, values, body, receipt, transaction))
    reader = reader_of(version)
    assert plain(read(reader, cut(data, places))) == wanted
    assert reader.incomplete_bytes == 0


@settings(max_examples=examples(500), deadline=None)
@given(
    version=st.sampled_from(list(Version)),
    data=st.lists(
        st.sampled_from(
            [
                b"SEND\n",
                b"SEND\r\n",
                b"CONNECT\n",
                b"destination:/queue/a\n",
                b"content-length:3\n",
                b"content-length:",
                b"receipt:1\n",
                b"receipt:1\r\n",
                b"\n",
                b"\r",
                b"\r\n",
                b"\n\n",
                b"\\",
                b":",
                b"abc",
                b"\0",
                b"\xff",
            ]
        )
        | st.binary(max_size=6),
        max_size=30,
    ).map(b"".join),
    places=st.lists(st.integers(0, 300), max_size=6),
)
def test_any_octets_are_frames_or_a_fault_however_they_are_cut(
    version: Version, data: bytes, places: list[int]
) -> None:
    def outcome(chunks: list[bytes]) -> tuple[list[Plain], str]:
        reader = reader_of(version, headers=5, header_line=30, header_block=60, body=20)
        found: list[Plain] = []
        try:
            for chunk in chunks:
                reader.feed(chunk)
                while some := reader.read():
                    found += plain(some)
        except Fault as fault:
            return found, fault.message
        return found, ""

    assert outcome(cut(data, places)) == outcome([data])


def test_the_cost_is_linear_in_the_octets() -> None:
    """Single octets of a large frame: the octets that are copied are counted, and not the time."""

    class Counted(bytearray):
        copied = 0

        def __iadd__(self, other: Any) -> Counted:  # type: ignore[misc]
            Counted.copied += len(other)
            super().__iadd__(other)
            return self

        def find(self, *arguments: Any) -> int:
            Counted.copied += len(self) - arguments[1]
            return super().find(*arguments)

    reader = reader_of()
    reader._pending = Counted()
    size = 50_000
    data = b"SEND\n\n" + b"x" * size + b"\0"
    assert len(read(reader, [data[at : at + 1] for at in range(len(data))])) == 1
    assert Counted.copied <= 4 * len(data)
