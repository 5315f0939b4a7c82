"""The options of TLS.  They are not in ``tls.py``: registering an engine must not import ``ssl``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

_SECURE = ("tls", "wss")
"""Transports that need certificates."""


class TlsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Certificates of one engine."""

    certificate: str | None = None
    """File with our certificate chain (PEM); a listener needs one."""
    key: str | None = None
    """File with its private key; None: it is in the certificate's file."""
    authorities: str | None = None
    """File with the certificates that we trust (PEM); None: the system's."""
    verify: Literal["peer", "none"] = "peer"
    """``peer``: a dialler verifies the server's certificate and name."""
    require_client_certificate: bool = False
    """A listener takes only peers that show a certificate of ``authorities`` (mutual TLS)."""
    request_client_certificate: bool = False
    """A listener asks for a certificate of ``authorities``, and takes also peers that show none."""
    server_name: str | None = None
    """The name that the server's certificate has to have; None: the host of the address."""

    def of_listener(self, transport: str) -> dict[str, str | None]:
        """Return the files of a listener's certificates, for operators; None for one without TLS."""
        secure = transport in _SECURE
        return {
            "certificate": self.certificate if secure else None,
            "authorities": self.authorities if secure else None,
        }

    def check_listener(self, transport: str) -> None:
        """Raise ``ValueError`` if a listener of this transport lacks its certificate."""
        if transport in _SECURE and self.certificate is None:
            raise ValueError(f"tls: a listener of {transport} needs tls.certificate (and tls.key)")

    def unreadable(self) -> Iterator[tuple[str, str]]:
        """``NeedsFiles``: try the files as an engine would."""
        missing = False
        for name in ("certificate", "key", "authorities"):
            path = getattr(self, name)
            try:
                if path is not None:
                    with open(path, "rb"):
                        pass
            except OSError as error:
                missing = True
                yield name, f"{path}: {error.strerror}"
        if missing or (self.certificate is None and self.authorities is None):
            return
        from kernel.hosting.tls import read_files

        try:
            read_files(self)
        except (OSError, ValueError) as error:
            # The text begins with the option, which the complaint names anyway.
            name, _, text = str(error).removeprefix("tls.").partition(" ")
            yield name.rstrip(":"), text
