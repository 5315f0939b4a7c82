"""The tables, walked: every pair moves on or is a fault, and every state can be reached and left."""

from __future__ import annotations

import itertools

import pytest

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.amqp091.channel import Channel
from plugins.protocols.amqp091.errors import ConnectionFault
from plugins.protocols.amqp091.states import (
    CHANNEL,
    CONNECTION,
    ChannelSignal,
    ChannelState,
    ConnectionSignal,
    ConnectionState,
)
from tests.notes import for_each


@for_each("state, signal", list(itertools.product(ChannelState, ChannelSignal)))
def test_a_channel_moves_on_or_names_the_one_at_fault(state: ChannelState, signal: ChannelSignal) -> None:
    for side, fault in (("received", ConnectionFault), ("sent", LocalProtocolError)):
        channel = Channel(1)
        channel.state = state
        if (state, signal) in CHANNEL:
            getattr(channel, side)(signal)
            assert channel.state is CHANNEL[state, signal]
        else:
            with pytest.raises(fault):
                getattr(channel, side)(signal)
            assert channel.state is state


def reachable(table: dict, first: object) -> set:
    seen = {first}
    while True:
        more = {target for (state, _), target in table.items() if state in seen} - seen
        if not more:
            return seen
        seen |= more


def test_every_state_can_be_reached() -> None:
    assert reachable(CONNECTION, ConnectionState.AWAITING_HEADER) == set(ConnectionState)
    assert reachable(CHANNEL, ChannelState.CLOSED) == set(ChannelState)


def test_every_state_of_a_connection_can_end() -> None:
    for state in ConnectionState:
        assert CONNECTION[state, ConnectionSignal.LOST] is ConnectionState.CLOSED
        assert ConnectionState.CLOSED in reachable(CONNECTION, state)


def test_a_closed_connection_stays_closed() -> None:
    assert reachable(CONNECTION, ConnectionState.CLOSED) == {ConnectionState.CLOSED}
