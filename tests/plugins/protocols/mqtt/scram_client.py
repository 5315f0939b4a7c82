"""The client's part of SCRAM-SHA-256, written from RFC 5802 and RFC 7677 and not from the server's code."""

from __future__ import annotations

import base64
import hashlib
import hmac


class ScramClient:
    """One exchange."""

    def __init__(
        self, name: str, password: str, nonce: str = "rOprNGfwEbeRWgbNEkqO", header: str = "n,,"
    ) -> None:
        self._password = password.encode()
        self._nonce = nonce
        self._header = header
        self._bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""
        self.salt = b""

    def first(self) -> bytes:
        return (self._header + self._bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the final message, after the server's first one."""
        fields = dict(field.split("=", 1) for field in server_first.decode().split(","))
        assert fields["r"].startswith(self._nonce)
        assert len(fields["r"]) > len(self._nonce), "the server has to add a nonce of its own"
        assert int(fields["i"]) >= 4096, "RFC 7677, 4"
        self.salt = base64.b64decode(fields["s"])
        without_proof = f"c={base64.b64encode(self._header.encode()).decode()},r={fields['r']}"
        message = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac("sha256", self._password, self.salt, int(fields["i"]))
        client_key = hmac.new(salted, b"Client Key", "sha256").digest()
        proof = _xor(client_key, hmac.new(hashlib.sha256(client_key).digest(), message, "sha256").digest())
        server_key = hmac.new(salted, b"Server Key", "sha256").digest()
        self._signature = hmac.new(server_key, message, "sha256").digest()
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """The server knows the password, too."""
        assert server_final == b"v=" + base64.b64encode(self._signature)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
