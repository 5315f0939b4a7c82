"""SCRAM-SHA-256: RFC 5802, with the example of RFC 7677, and a library as the other side."""

from __future__ import annotations

from base64 import b64decode

import pytest

from plugins.protocols.mqtt.scram import ScramFault, ScramKeys, ServerExchange, prepare, scram_keys
from tests import peers
from tests.notes import for_each
from tests.plugins.protocols.mqtt.scram_client import ScramClient

scramp = peers.optional("scramp")

# RFC 7677, 3.
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def keys_of(name: str) -> ScramKeys:
    return scram_keys("pencil", SALT)


def test_the_example_of_the_rfc_is_answered_as_there() -> None:
    server = ServerExchange(SERVER_NONCE, keys_of)
    assert server.first(CLIENT_FIRST) == SERVER_FIRST
    assert server.name == "user"
    assert server.final(CLIENT_FINAL) == SERVER_FINAL


def test_the_client_of_these_tests_says_what_the_example_says() -> None:
    client = ScramClient("user", "pencil")
    assert client.first() == CLIENT_FIRST
    assert client.final(SERVER_FIRST) == CLIENT_FINAL
    client.verify(SERVER_FINAL)


def test_a_wrong_password_has_no_signature() -> None:
    server, client = ServerExchange(SERVER_NONCE, keys_of), ScramClient("user", "pen")
    assert server.final(client.final(server.first(client.first()))) is None


@for_each("name", ["a,b", "a=b", "=2C", "Ünï", "other:user"])
@for_each("header", ["n,,", "y,,"])
def test_names_may_have_any_signs(name: str, header: str) -> None:
    server, client = ServerExchange(SERVER_NONCE, keys_of), ScramClient(name, "pencil", header=header)
    answer = server.final(client.final(server.first(client.first())))
    assert server.name == name
    assert answer is not None
    client.verify(answer)


@for_each(
    "message",
    [
        b"",
        b"\xff",
        b"n,,n=user",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",  # only =2C and =3D stand for something
        b"n,,n=user,r=a\x7fb",
        b"n,,m=extension,n=user,r=abc",  # an extension that must be known
        b"p=tls-unique,,n=user,r=abc",  # channel binding, which is not offered
        b"n,a=admin,n=user,r=abc",  # on behalf of somebody else
        b"\0user\0pencil",
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(ScramFault):
        ServerExchange(SERVER_NONCE, keys_of).first(message)


@for_each(
    "before, after",
    [
        (b"biws", b"eSws"),  # another header than in the first message
        (b"biws", b"#"),
        (b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),  # the server's nonce is missing
        (b"k0,p", b"k1,p"),
        (b"p=dHzb", b"p="),
        (b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b""),
        (b"c=biws,", b""),
        (b"=", b""),
    ],
)
def test_a_final_message_of_another_exchange_is_refused(before: bytes, after: bytes) -> None:
    server = ServerExchange(SERVER_NONCE, keys_of)
    server.first(CLIENT_FIRST)
    with pytest.raises(ScramFault):
        server.final(CLIENT_FINAL.replace(before, after))


def test_a_proof_that_is_changed_is_wrong() -> None:
    server = ServerExchange(SERVER_NONCE, keys_of)
    server.first(CLIENT_FIRST)
    assert server.final(CLIENT_FINAL.replace(b"p=dH", b"p=eH")) is None


@for_each(
    "text, prepared",
    [
        # RFC 4013, 3; what it forbids stays as it is.
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\u0007", "\u0007"),
        ("\u0627\u0031", "\u0627\u0031"),
        ("a\u00a0b", "a b"),
        ("", ""),
    ],
)
def test_passwords_are_prepared(text: str, prepared: str) -> None:
    assert prepare(text) == prepared


@pytest.mark.peer("scramp")
@pytest.mark.parametrize("password", ["pencil", "I\u00adX", "\u2168", "Kühe", "a b,c=d"])
def test_a_library_agrees(password: str) -> None:
    server = ServerExchange(SERVER_NONCE, lambda name: scram_keys(password, SALT))
    client = scramp.ScramClient(["SCRAM-SHA-256"], "us,er=", password)
    client.set_server_first(server.first(client.get_client_first().encode()).decode())
    answer = server.final(client.get_client_final().encode())
    assert answer is not None
    client.set_server_final(answer.decode())
    assert server.name == "us,er="
