"""Call: one request to the management API, and the steps by which it is answered.

A handler is a generator.  It yields what it has to wait for (``Operation``, ``PAUSE``) and gets the answer as
the value of that expression.  So it reads like a function, and never holds up its thread: between two steps
other engines have their turns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelError
from kernel.contracts.system import System
from plugins.engines.web.answer import Answer, Request, Respond, error, json_answer
from plugins.engines.web.logins import WebUser
from plugins.engines.web.management.rates import Rates

SECONDS = 30.0
"""How long the broker may take for one step."""


class Operation(NamedTuple):
    """An operation of the broker (``Operable``)."""

    what: str
    argument: Any


class Pause(NamedTuple):
    """Go on in a later turn."""


PAUSE = Pause()

Step: TypeAlias = Operation | Pause
Steps: TypeAlias = Generator[Step, Any, Answer]
Rows: TypeAlias = Generator[Step, Any, list[dict[str, Any]]]
OneRow: TypeAlias = Generator[Step, Any, dict[str, Any]]
Handler: TypeAlias = "Callable[[Call], Steps]"


class Refused(Exception):
    """The request is refused with this status."""

    def __init__(self, status: int, what: str, reason: object) -> None:
        super().__init__(f"{status} {what}: {reason}")
        self.answer = error(status, what, reason)


def not_found() -> Refused:
    """Return RabbitMQ's refusal of what does not exist."""
    return Refused(404, "Object Not Found", "Not Found")


def bad_request(reason: object) -> Refused:
    """Return RabbitMQ's refusal of a request that makes no sense."""
    return Refused(400, "bad_request", reason)


class Call:
    """One request, with what its path names and who asks."""

    def __init__(
        self,
        request: Request,
        names: Mapping[str, str],
        user: WebUser,
        broker: str,
        system: System,
        rates: Rates,
        now: float,
        listener: dict[str, Any],
    ) -> None:
        self.request = request
        self.names = names
        """What the path has in place of ``{vhost}`` and others."""
        self.user = user
        self.broker = broker
        """The engine."""
        self.system = system
        self.rates = rates
        self.now = now
        self.listener = listener
        """Where the web engine listens, in the form in which the broker's status has its own listeners."""
        self.vhost_exists = False
        """Whether there is the virtual host that the path names."""
        self.node = f"{broker}@localhost"
        """What RabbitMQ's tools take for the name of the node."""

    def ask(self, what: str, argument: Any) -> Generator[Step, Any, Any]:
        """Have the broker do something; return its answer."""
        return (yield Operation(what, argument))

    def change(self, what: str, **asked: Any) -> Generator[Step, Any, dict[str, Any]]:
        """Have the broker change something with the permissions of the user, in the path's virtual host."""
        asked = {"user": self.user.name, "vhost": self.names.get("vhost", "/"), **asked}
        done: dict[str, Any] = yield Operation(what, asked)
        refused = done.get("refused")
        if refused is not None:
            raise refusal(refused)
        return done

    def browse(self, what: str, **narrowed: Any) -> Rows:
        """Return all rows of a sort, read in pieces."""
        found: list[dict[str, Any]] = []
        yield from self.pieces(what, found.extend, **narrowed)
        return found

    def pieces(
        self, what: str, take: Callable[[list[dict[str, Any]]], None], **narrowed: Any
    ) -> Generator[Step, Any, None]:
        """Have ``take`` called with the rows of a sort, piece by piece."""
        piece = yield Operation("browse", {"what": what, **narrowed})
        take(piece["rows"])
        while piece["walk"] is not None:
            piece = yield Operation("browse", {"walk": piece["walk"]})
            take(piece["rows"])

    def body(self, *required: str) -> dict[str, Any]:
        """Return the JSON object that was sent; refuse one without the keys that are required."""
        text = self.request.body.strip()
        if not text:
            # RabbitMQ takes no body for an empty object: a PUT of a virtual host needs none.
            found: Any = {}
        else:
            try:
                found = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                # RecursionError: as deep as nobody writes it.
                found = None
        if not isinstance(found, dict):
            raise bad_request("not_json")
        missing = [f"{{key_missing,{key}}}" for key in required if key not in found]
        if missing:
            raise bad_request(f"[{','.join(missing)}]")
        return found


def refusal(refused: Mapping[str, Any]) -> Refused:
    """Return RabbitMQ's answer to what the broker refuses with an AMQP code."""
    code, reason = refused["code"], refused["reason"]
    # RabbitMQ's management API answers so to what AMQP calls ACCESS_REFUSED.
    if code == 403:
        return Refused(401, "not_authorised", "Access refused.")
    if code == 404:
        return Refused(404, "not_found", reason)
    if code == 530:
        return Refused(404, "not_found", "vhost_not_found")
    return bad_request(reason)


class Conduct:
    """Carries out the steps of one handler."""

    def __init__(self, call: Call, steps: Steps, host: Host, respond: Respond) -> None:
        self._call = call
        self._steps = steps
        self._host = host
        self._respond = respond

    def begin(self) -> None:
        """Do the first step."""
        self._go_on(None, None)

    def _go_on(self, value: Any, failure: KernelError | None) -> None:
        try:
            step = self._steps.send(value) if failure is None else self._steps.throw(failure)
        except StopIteration as done:
            self._respond(done.value)
        except Refused as refused:
            self._respond(refused.answer)
        except KernelError as failed:
            self._respond(error(503, "Service Unavailable", str(failed)))
        except Exception as fault:
            # An error in a handler ends its request, and not the pages of everybody.
            self._respond(error(500, "Internal Server Error", f"{type(fault).__name__}: {fault}"))
        else:
            if isinstance(step, Operation):
                call = self._call
                # The answer comes in a later turn, as the value of the ``yield``.
                call.system.operate(call.broker, step.what, step.argument, self._host, self._go_on, SECONDS)
            else:
                self._host.soon(lambda: self._go_on(None, None))


def done(status: int, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Return an answer without a body."""
    return Answer(status, headers=headers)


def shown(content: Any) -> Answer:
    """Return an answer that shows something."""
    return json_answer(200, content)
