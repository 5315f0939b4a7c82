"""Passwords in RabbitMQ's form."""

from __future__ import annotations

import re

import msgspec
import pytest

from plugins.engines.amqp.options import AmqpOptions
from plugins.engines.broker.host.options import Hashing
from plugins.engines.broker.host.passwords import Password

DOCUMENTED = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
"""RabbitMQ's manual ("Password Hashing"): test12 with the salt 90 8D C6 0A."""
EXPORTED = "6zwgSD4J9Kvjf6CdiphBs6rDEmexpE8T+No5o07TOtUV2Wlo"
"""A RabbitMQ 3.10.8 has exported its guest like this."""


@pytest.mark.parametrize("text, password", [(DOCUMENTED, "test12"), (EXPORTED, "guest")])
def test_rabbitmqs_hashes_are_understood(text: str, password: str) -> None:
    known = Password.from_hash(text, "sha256")
    assert known.is_given_by(password)
    assert not known.is_given_by(password + "x")
    assert not known.is_given_by("")
    assert known.as_hash() == text


def test_a_password_in_plain_text_becomes_rabbitmqs_form() -> None:
    assert Password.from_plain("test12", bytes.fromhex("908dc60a")).as_hash() == DOCUMENTED


@pytest.mark.parametrize("password", [Password(), Password.from_plain("", b"salt")])
def test_without_a_password_nobody_has_it(password: Password) -> None:
    assert not password.is_given_by("")
    assert password.as_hash() == ""


@pytest.mark.parametrize("hashing, octets", [("sha256", 36), ("sha512", 68), ("md5", 20)])
def test_a_hash_of_another_length_is_refused(hashing: Hashing, octets: int) -> None:
    with pytest.raises(ValueError, match=f"a {hashing} password hash has {octets} octets in base64, not 3"):
        Password.from_hash("AAAA", hashing)


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"users": {"eve": {"password": "p", "password_hash": DOCUMENTED}}}, "not both"),
        ({"users": {"eve": {"password_hash": "?"}}}, "base64"),
        ({"users": {"eve": {"password": "p", "read": "("}}}, r"read = '\(' is no regular expression"),
        ({"anonymous": "nobody"}, "anonymous = 'nobody' is none of the users: guest"),
    ],
)
def test_options_that_contradict_themselves_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=re.compile(complaint, re.IGNORECASE)):
        msgspec.convert(options, AmqpOptions)
