"""Origin: who a client is, by its certificate."""

from __future__ import annotations

import ssl

from kernel.hosting.facts import subject_of


def certified_name(connected: ssl.SSLSocket) -> str | None:
    """Return the common name in the peer's certificate.

    None without a verified one, or with several names.
    """
    return subject_of(connected) or None
