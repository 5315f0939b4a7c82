"""A web hook: takes messages from its routes, posts them, and confirms or refuses each as the server answers.

A message is confirmed when the server has answered 2xx.  Without an answer it stays unconfirmed and is posted
again, so that no message is lost while the server is away.  A message may arrive twice, as with each engine
that confirms.
"""

from __future__ import annotations

import threading
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port, Taken
from kernel.contracts.message import Message, messages_of
from kernel.hosting.backoff import Backoff
from kernel_webhook.options import WebhookOptions
from kernel_webhook.poster import Poster


class Webhook:
    """``kernel.contracts.engine.Engine``, and the owner of its only port."""

    host: Host
    port: Port

    def __init__(self, name: str, options: WebhookOptions) -> None:
        self._name = name
        self._options = options
        self._poster = Poster(options)
        self._backoff = Backoff(options.retry)
        self._news = trio.Event()
        self._waiting: list[Message] = []
        self._position: int | None = None
        """Of the last message taken; None: nobody waits for confirmations."""
        self._posted = self._refused = self._retries = 0

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Post until cancelled."""
        self.host = host
        self.port = host.port(self._name, self)
        task_status.started(self._options.url)
        try:
            while True:
                await self._turn()
        finally:
            self._poster.stop()  # a request that is under way is cut off

    async def _turn(self) -> None:
        """Post what waits, or wait for something."""
        if not self._waiting:
            self._news = trio.Event()
            taken = self.port.take(self._options.batch)
            if not taken:
                await self._news.wait()
                return
            self._take(taken)
        done, trouble = await self._post()
        self._answer(done)
        if done:
            self._backoff.succeeded()
        if trouble:
            wait = self._backoff.next_wait()
            self._retries += 1
            self.host.report(
                EngineEvent(
                    engine=self._name,
                    what="retrying",
                    peer=self._options.url,
                    detail=trouble,
                    next_try=wait,
                )
            )
            await trio.sleep(wait)

    def _take(self, taken: Taken) -> None:
        self._waiting = [message for batch in taken.batches for message in messages_of(batch)]
        self._position = taken.position

    async def _post(self) -> tuple[list[str | None], str]:
        """Post in a thread of its own: the HTTP client waits."""
        answers: list[tuple[list[str | None], str]] = []
        over = trio.Event()

        def post() -> None:
            answers.append(self._poster.post(self._waiting))
            self.host.post(over.set)

        threading.Thread(target=post, name=f"{self._name} posts", daemon=True).start()
        await over.wait()
        return answers[0]

    def _answer(self, done: list[str | None]) -> None:
        """Refuse what the server refused, and confirm the rest of what it has answered for."""
        before, after = len(self._waiting), len(self._waiting) - len(done)
        refused = sum(reason is not None for reason in done)
        self._refused += refused
        self._posted += len(done) - refused
        del self._waiting[: len(done)]
        if self._position is None:
            return
        first = self._position - before + 1
        for number, reason in enumerate(done):
            if reason is not None:
                self.port.refuse(first + number, first + number, reason)
        self.port.confirm_through(self._position - after)

    def statistics(self) -> dict[str, Any]:
        """Counters, by the standard names."""
        return {"messages_out": self._posted, "messages_refused": self._refused, "retries": self._retries}

    def pending(self) -> bool:
        """Whether something is not posted yet."""
        return bool(self._waiting) or self.port.has_input()

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """Pipes have something for us."""
        self._news.set()

    def on_writable(self) -> None:
        """A web hook sends nothing into the kernel."""

    def on_confirmed(self, position: int) -> None:
        """A web hook sends nothing into the kernel."""
