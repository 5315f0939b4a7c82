"""Logins: the users of a broker, by HTTP Basic (RFC 7617)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelError, LoginRefused
from kernel.contracts.system import System
from kernel.hosting.failed_logins import LOGIN_DELAY
from kernel.hosting.loopback import names_loopback
from plugins.engines.web.answer import Answer, Request, Respond, error

SECONDS = 10.0
"""How long the broker may take."""

_MEANS = {
    "administrator": ("administrator", "monitoring", "policymaker", "management"),
    "monitoring": ("monitoring", "management"),
    "policymaker": ("policymaker", "management"),
    "management": ("management",),
}
"""RabbitMQ's tags, and what a user with one is."""


def tags_for(what: str) -> list[str]:
    """Return the tags that make a user this, the least one first."""
    return [tag for tag in reversed(_MEANS) if what in _MEANS[tag]]


class WebUser(NamedTuple):
    """A user who has logged in."""

    name: str
    tags: tuple[str, ...]
    vhosts: frozenset[str]
    """The virtual hosts that it may open."""

    def is_a(self, tag: str) -> bool:
        """Whether one of its tags makes it this."""
        return any(tag in _MEANS.get(each, ()) for each in self.tags)

    @property
    def monitors(self) -> bool:
        """Whether it may see what is not its own."""
        return self.is_a("monitoring")

    @property
    def administers(self) -> bool:
        """Whether it may change what is not its own."""
        return self.is_a("administrator")

    def opens(self, vhost: str) -> bool:
        """Whether it may see the queues of a virtual host (RabbitMQ: an administrator those of any)."""
        return self.administers or vhost in self.vhosts

    def sees(self, vhost: str) -> bool:
        """Whether it may see that there is this virtual host."""
        return self.monitors or vhost in self.vhosts


NOBODY = WebUser("", (), frozenset())
"""Who asks where nobody has to log in."""

_CHALLENGE = (("www-authenticate", 'Basic realm="RabbitMQ Management", charset="UTF-8"'),)
"""With the realm of RabbitMQ, for which tools may keep the password, as those of Nagios do."""


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

    def check(self, request: Request, admit: Callable[[WebUser], None], respond: Respond) -> None:
        """Call ``admit`` with the user who asks, or ``respond`` with the reason why not.

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
        self, admit: Callable[[WebUser], None], respond: Respond, user: Any, failure: KernelError | None
    ) -> None:
        if failure is None:
            admit(WebUser(user["user"], tuple(user["tags"]), frozenset(user["vhosts"])))
        # Else the broker has not answered, or is not there: that says nothing about the password.
        elif isinstance(failure.__cause__, LoginRefused):
            self.refused += 1
            # An object for each: a timer is known by its key, and several logins may fail at the same time.
            self._host.set_timer(
                self._host.now() + LOGIN_DELAY, partial(respond, _unauthorized(close=True)), object()
            )
        else:
            respond(error(503, "Service Unavailable", f"logins cannot be checked: {failure}"))

    @staticmethod
    def _check_host(request: Request, admit: Callable[[WebUser], None], respond: Respond) -> None:
        """Without a login, refuse requests for the name of another machine.

        A browser on this machine sends one if a foreign page has had its own name resolved to 127.0.0.1, so
        as to read what is here (DNS rebinding).
        """
        host = request.headers.get(b"host", b"").decode("latin-1")
        # Without a name (HTTP/1.0) it is no browser.
        if not host or names_loopback(_without_port(host)):
            admit(NOBODY)
        else:
            reason = (
                "without a login there are pages for the names of loopback only: localhost, 127.0.0.1, [::1]"
            )
            respond(error(421, "Misdirected Request", reason))


def _unauthorized(*, close: bool = False) -> Answer:
    # RabbitMQ's words.
    return error(401, "not_authorized", "Login failed", _CHALLENGE, close=close)


def _credentials(header: bytes) -> tuple[str, bytes] | None:
    """Return the user and the password of a Basic header; None if it is none."""
    scheme, _, encoded = header.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = b64decode(encoded.strip(), validate=True).partition(b":")
    except ValueError:
        return None
    # The challenge asks for UTF-8 (RFC 7617, 2.1). Other octets stay distinct, so that they match no user by
    # chance.
    return (user.decode("utf-8", "surrogateescape"), password) if colon else None


def comes_from_elsewhere(request: Request) -> bool:
    """Whether a page of another site has had the browser send this.

    A browser adds the password of a user by itself, whoever makes it send the request (CSRF).  It also says
    where the page is from, which tools do not.
    """
    if request.headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        return True
    origin = request.headers.get(b"origin")
    return origin is not None and origin.partition(b"://")[2] != request.headers.get(b"host", b"")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
