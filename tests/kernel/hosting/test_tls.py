"""What is wrong with a file of TLS is told with its name."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from kernel.hosting.tls import client_context, server_context
from kernel.hosting.tls_options import TlsOptions


@pytest.mark.parametrize("option", ["certificate", "key", "authorities"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, option: str) -> None:
    there, missing = tmp_path / "there.pem", tmp_path / "missing.pem"
    there.write_text("")
    options = TlsOptions(**{"certificate": str(there), option: str(missing)})
    for context in (server_context, client_context):
        with pytest.raises(FileNotFoundError, match="missing.pem"):
            context(options)


@pytest.mark.parametrize("apart", [True, False])
def test_nobody_is_asked_for_the_passphrase_of_a_key(tmp_path: Path, apart: bool) -> None:
    """OpenSSL asks on the terminal by itself."""
    issued = trustme.CA().issue_cert("localhost")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a passphrase"))
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    certificate, own = tmp_path / "server.pem", tmp_path / "server.key"
    certificate.write_bytes(chain if apart else chain + encrypted)
    own.write_bytes(encrypted)
    options = TlsOptions(certificate=str(certificate), key=str(own) if apart else None)
    named = "key: .*server.key" if apart else "certificate: .*server.pem"
    for context in (server_context, client_context):
        with pytest.raises(ValueError, match=rf"tls\.{named}: the private key is encrypted"):
            context(options)
    assert [name for name, _ in options.unreadable()] == ["key" if apart else "certificate"]


@pytest.mark.parametrize("option", ["certificate", "authorities"])
def test_a_file_with_something_else_in_it_is_named(tmp_path: Path, option: str) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(ValueError, match=f"tls.{option}.*wrong.pem"):
        client_context(TlsOptions(**{option: str(wrong)}))
