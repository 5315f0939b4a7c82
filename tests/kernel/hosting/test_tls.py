"""What is wrong with a file of TLS is told with its name."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize("option", ["certificate", "authorities"])
def test_a_file_with_something_else_in_it_is_named(tmp_path: Path, option: str) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(ValueError, match=f"tls.{option}.*wrong.pem"):
        client_context(TlsOptions(**{option: str(wrong)}))
