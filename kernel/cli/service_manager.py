"""Service manager: tells systemd, or another one that sets ``NOTIFY_SOCKET``, what becomes of a system.

The protocol is that of sd_notify(3): a datagram has lines ``NAME=VALUE``.  With ``WATCHDOG_USEC`` the manager
restarts the service if it does not hear ``WATCHDOG=1`` in time (sd_watchdog_enabled(3)).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping

_SEND_TIMEOUT = 1.0
"""Seconds for which a message waits for a manager that does not read."""


class ServiceManager:
    """What has started this process, if it wants to be told; otherwise each call does nothing."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        place = environment.get("NOTIFY_SOCKET", "")
        # "@" stands for the zero of Linux's abstract names.  Other places (vsock) are not served.
        self._place = f"\0{place[1:]}" if place.startswith("@") else place
        self._wanted = place[:1] in ("/", "@")
        self.alive_every: float | None = self._seconds_between_signs(environment)
        """Seconds after which ``is_alive`` has to be called again; None: it need not be called."""

    def _seconds_between_signs(self, environment: Mapping[str, str]) -> float | None:
        limit = environment.get("WATCHDOG_USEC", "")
        # A process that the service has started inherits the variables, and is not meant.
        process = environment.get("WATCHDOG_PID", "") or str(os.getpid())
        if not self._wanted or not limit.isdecimal() or process != str(os.getpid()):
            return None
        return int(limit) / 2_000_000 or None

    def is_ready(self, status: str) -> None:
        """All engines are up; or a reload is over."""
        self._tell(READY="1", STATUS=status)

    def reloads(self) -> None:
        """The system changes; ``is_ready`` follows."""
        # The time is what distinguishes two reloads for ``Type=notify-reload``.
        self._tell(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000))

    def stops(self, reason: str) -> None:
        """The system ends."""
        self._tell(STOPPING="1", STATUS=reason)

    def is_alive(self) -> None:
        """Give the sign of life that the watchdog waits for."""
        self._tell(WATCHDOG="1")

    def _tell(self, **said: str) -> None:
        if not self._wanted:
            return
        lines = "\n".join(f"{name}={' '.join(value.split())}" for name, value in said.items())
        # A manager that is gone changes nothing for the system.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.settimeout(_SEND_TIMEOUT)
            sending.sendto(lines.encode(), self._place)
