"""The options of TLS.  They are not in ``tls.py``: registering an engine must not import ``ssl``."""

from __future__ import annotations

from typing import Literal

import msgspec


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
    server_name: str | None = None
    """The name that the server's certificate has to have; None: the host of the address."""
