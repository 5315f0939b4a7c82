"""The shipped checks find what they are there to find."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch
from kernel.testing import protocol_checks
from kernel.testing.protocol_checks import ProtocolSubject
from plugins.protocols.backend.connection import BackendConnection
from plugins.protocols.backend.frames import Control, control_frame
from plugins.protocols.backend.options import BackendOptions
from tests.notes import for_each


class Sound(BackendConnection):
    """Nothing wrong with it."""

    def __init__(self, side: str) -> None:
        super().__init__(BackendOptions(), side)


class Losing(Sound):
    def receive_data(self, data: Any, now: float) -> list[Batch]:
        return super().receive_data(data, now)[1:]


class Raising(Sound):
    def receive_data(self, data: Any, now: float) -> list[Batch]:
        try:
            return super().receive_data(data, now)
        except RemoteProtocolError as error:
            raise IndexError from error


class Chatty(Sound):
    def data_to_send(self) -> list[Any]:
        data = super().data_to_send()
        return [*data, control_frame(Control.PING)] if self.ready_to_send() else data


class Impatient(Sound):
    def next_deadline(self) -> float | None:
        return 0.0


class Counting(Sound):
    def receive_data(self, data: Any, now: float) -> list[Batch]:
        return [Batch(run.bodies, 7, run.envelope) for run in super().receive_data(data, now)]


class Weighing(Sound):
    def receive_data(self, data: Any, now: float) -> list[Batch]:
        return [Batch(run.bodies, run.size, run.envelope, width=7) for run in super().receive_data(data, now)]


@for_each(
    "kind, check",
    [
        (Losing, "whole"),
        (Losing, "byte_by_byte"),
        (Losing, "random_chunks"),
        (Raising, "hostile_bytes"),
        (Raising, "mutated_bytes"),
        (Impatient, "deadlines_move_on"),
        (Counting, "sizes_are_counted"),
        (Weighing, "sizes_are_counted"),
    ],
)
def test_a_check_finds_what_it_is_there_to_find(kind: type[Sound], check: str) -> None:
    with pytest.raises(AssertionError):
        getattr(protocol_checks, check)(ProtocolSubject(make=lambda: (kind("client"), kind("server"))))


@pytest.mark.slow
def test_a_check_passes_what_is_sound() -> None:
    for check in protocol_checks.PROTOCOL_CHECKS:
        check(ProtocolSubject(make=lambda: (Sound("client"), Sound("server"))))


def test_ends_that_send_without_end_are_found() -> None:
    with pytest.raises(AssertionError, match="without end"):
        protocol_checks.whole(ProtocolSubject(make=lambda: (Chatty("client"), Sound("server"))))
