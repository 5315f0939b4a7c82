"""Retained turns: who may send retained messages now.

To read 100,000 of them takes many steps of about half a millisecond.  In one turn of the loop there is one
step, whoever makes it: each client that is written to could make another one, and all other clients would
wait for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.engines.mqtt.retained import STEP, Step

if TYPE_CHECKING:
    from plugins.engines.broker.public import BrokerEngine
    from plugins.engines.mqtt.client import MqttClient


class RetainedTurns:
    """The clients of one broker that want to send retained messages, in their order."""

    def __init__(self, engine: BrokerEngine) -> None:
        self.step = Step()
        """What may still be done in this turn of the loop."""
        self._engine = engine
        # A dictionary as a set that keeps its order.
        self._waiting: dict[MqttClient, None] = {}
        self._posted = False
        """Whether the next step begins in the next turn of the loop."""

    def begin(self, client: MqttClient) -> bool:
        """Return whether a client may send now; if not, it becomes busy when it may."""
        first = next(iter(self._waiting), client)
        if first is not client or self.step.left <= 0:
            self.wait(client)
            return False
        self.leave(client)
        self._post()
        return True

    def wait(self, client: MqttClient) -> None:
        """The client has more to send: it becomes busy when it is its turn again."""
        self._waiting[client] = None
        self._post()

    def leave(self, client: MqttClient) -> None:
        """The client sends nothing for now."""
        self._waiting.pop(client, None)

    def _post(self) -> None:
        if not self._posted:
            self._posted = True
            self._engine.host.soon(self._begin_step)

    def _begin_step(self) -> None:
        self._posted = False
        self.step.left = STEP
        first = next(iter(self._waiting), None)
        if first is not None and self._engine.running:
            first.is_busy()
            self._engine.finish_turn(self._engine.host.now())
            # It may have found its socket full.
            if self._waiting:
                self._post()
