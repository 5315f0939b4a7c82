"""Logins: the users of a broker, by HTTP Basic (RFC 7617)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import Any

from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelError, LoginRefused
from kernel.contracts.system import System
from kernel.hosting.loopback import names_loopback
from plugins.engines.web.answer import Answer, Request, Respond, error

REFUSAL_DELAY = 1.0
"""Seconds after which a failed login is answered, so that passwords cannot be tried quickly.  The broker lets
its own clients wait as long."""

SECONDS = 10.0
"""How long the broker may take."""

TAGS = frozenset({"administrator", "monitoring"})
"""RabbitMQ's tags of users who may see the whole broker."""

_CHALLENGE = (("www-authenticate", 'Basic realm="messaging kernel", charset="UTF-8"'),)


class Logins:
    """Decides whether a request may see a page.

    ``broker`` is the engine that knows the users.  Empty: nobody has to log in.
    """

    def __init__(self, system: System, host: Host, broker: str) -> None:
        self.refused = 0
        """Logins that failed so far."""
        self._system = system
        self._host = host
        self._broker = broker

    def check(self, request: Request, admit: Callable[[], None], respond: Respond) -> None:
        """Call ``admit`` if the request may see the page, and else ``respond`` with the reason.

        The password is checked in the broker's thread, so either may be called in a later turn.
        """
        if not self._broker:
            self._check_host(request, admit, respond)
            return
        given = _credentials(request.headers.get(b"authorization", b""))
        if given is None:
            respond(_unauthorized())
            return
        user, password = given
        login = {
            "mechanism": "PLAIN",
            "user": user,
            "secret": password,
            "peer": request.peer,
            "facts": {"loopback": request.loopback},
        }
        done = partial(self._decided, admit, respond)
        self._system.operate(self._broker, "authenticate", login, self._host, done, SECONDS)

    def _decided(
        self, admit: Callable[[], None], respond: Respond, user: Any, failure: KernelError | None
    ) -> None:
        if failure is None:
            if TAGS.isdisjoint(user["tags"]):
                respond(error(403, "forbidden", "the user needs the tag monitoring or administrator"))
            else:
                admit()
        elif isinstance(failure.__cause__, LoginRefused):
            self.refused += 1
            # An object for each: a timer is known by its key, and several logins may fail at the same time.
            self._host.set_timer(
                self._host.now() + REFUSAL_DELAY, partial(respond, _unauthorized(close=True)), object()
            )
        else:
            respond(error(503, "Service Unavailable", f"logins cannot be checked: {failure}"))

    @staticmethod
    def _check_host(request: Request, admit: Callable[[], None], respond: Respond) -> None:
        """Without a login, refuse requests for the name of another machine.

        A browser on this machine sends one if a foreign page has had its own name resolved to 127.0.0.1, so
        as to read what is here (DNS rebinding).
        """
        host = request.headers.get(b"host", b"").decode("latin-1")
        # Without a name (HTTP/1.0) it is no browser.
        if not host or names_loopback(_without_port(host)):
            admit()
        else:
            reason = (
                "without a login there are pages for the names of loopback only: localhost, 127.0.0.1, [::1]"
            )
            respond(error(421, "Misdirected Request", reason))


def _unauthorized(*, close: bool = False) -> Answer:
    # RabbitMQ's words.
    return error(401, "not_authorised", "Login failed", _CHALLENGE, close=close)


def _credentials(header: bytes) -> tuple[str, bytes] | None:
    """Return the user and the password of a Basic header; None if it is none."""
    scheme, _, encoded = header.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = b64decode(encoded.strip(), validate=True).partition(b":")
    except ValueError:
        return None
    return (user.decode("utf-8", "surrogateescape"), password) if colon else None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
