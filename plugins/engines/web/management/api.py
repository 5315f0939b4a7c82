"""API: finds the route of a request, checks that the user may ask, and has it answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel.contracts.engine import Host
from kernel.contracts.system import System
from plugins.engines.web.answer import Answer, Request, Respond, error
from plugins.engines.web.logins import WebUser
from plugins.engines.web.management.call import Call, Conduct, Refused, Steps, not_found
from plugins.engines.web.management.rates import Rates
from plugins.engines.web.management.routes import Route, Tag, find

_REASONS: dict[Tag, str] = {
    "management": "Not management user",
    "policymaker": "User not authorised to access object",
    "monitoring": "Not monitor user",
    "administrator": "Not administrator user",
}
"""RabbitMQ's words."""


class Api:
    """The API for one broker."""

    def __init__(
        self, system: System, host: Host, broker: str, listener: Callable[[], dict[str, Any]]
    ) -> None:
        """``broker`` is the engine.  ``listener``: where the web engine listens (``Call.listener``)."""
        self._system = system
        self._host = host
        self._broker = broker
        self._listener = listener
        self._rates = Rates()

    def answer(self, request: Request, user: WebUser, respond: Respond) -> None:
        """Answer a request below ``/api/`` of a user who has logged in."""
        parts = request.parts[1:]
        found = find(parts).routes
        method = "GET" if request.method == "HEAD" else request.method
        if not found:
            respond(error(404, "Object Not Found", "Not Found"))
            return
        allowed = ", ".join(sorted({*found, "OPTIONS", *(("HEAD",) if "GET" in found else ())}))
        if method == "OPTIONS":
            respond(Answer(200, headers=(("allow", allowed),)))
            return
        if method not in found:
            respond(Answer(405, headers=(("allow", allowed),)))
            return
        route, names = found[method]
        host = self._host
        call = Call(
            request, names, user, self._broker, self._system, self._rates, host.now(), self._listener()
        )
        Conduct(call, _steps(call, route), host, respond).begin()


def _steps(call: Call, route: Route) -> Steps:
    user, vhost = call.user, call.names.get("vhost")
    if not user.is_a("management"):
        raise Refused(401, "not_authorised", _REASONS["management"])
    if vhost is not None:
        rows = yield from call.browse("vhosts", vhost=vhost)
        call.vhost_exists = bool(rows)
    if not user.is_a(route.tag):
        raise Refused(401, "not_authorised", _REASONS[route.tag])
    if vhost is not None:
        if not call.vhost_exists and route.needs_vhost:
            raise (
                Refused(404, "not_found", "vhost_not_found")
                if route.method in ("PUT", "POST")
                else not_found()
            )
        if call.vhost_exists and not user.opens(vhost):
            raise Refused(401, "not_authorised", "User not authorised to access virtual host")
    return (yield from route.handler(call))
