"""Names and passwords out of start-ok."""

import pytest

from plugins.protocols.amqp091.credentials import amqplain_response, credentials_of, plain_response
from plugins.protocols.amqp091.field_tables import encode_table


def test_plain() -> None:
    assert credentials_of("PLAIN", b"\0guest\0secret") == ("guest", "secret")
    assert credentials_of("PLAIN", plain_response("é", "p")) == ("é", "p")


def test_amqplain() -> None:
    assert credentials_of("AMQPLAIN", encode_table({"LOGIN": "a", "PASSWORD": "b"})[4:]) == ("a", "b")
    assert amqplain_response("a", "b") == b"\x05LOGINS\0\0\0\x01a\x08PASSWORDS\0\0\0\x01b"


@pytest.mark.parametrize(
    "mechanism, response",
    [
        ("PLAIN", b"guest"),
        ("PLAIN", b"a\0b\0c\0d"),
        ("AMQPLAIN", b"\5"),
        ("AMQPLAIN", encode_table({"LOGIN": "a", "PASSWORD": 5})[4:]),
        ("EXTERNAL", b""),
    ],
)
def test_anything_else_is_no_credentials(mechanism: str, response: bytes) -> None:
    assert credentials_of(mechanism, response) is None
