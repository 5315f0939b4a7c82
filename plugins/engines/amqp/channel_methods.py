"""The methods of the classes channel, confirm and tx, and the table of all methods on a channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from plugins.engines.amqp import basic_methods, exchange_methods, queue_methods
from plugins.engines.amqp.channel import Channel
from plugins.engines.broker.public import NotImplementedHere, PreconditionFailed
from plugins.protocols.amqp091.methods import access, basic, channel, confirm, exchange, queue, tx
from plugins.protocols.amqp091.methods.method import Method

if TYPE_CHECKING:
    from plugins.engines.broker.public import Transaction


def flow(here: Channel, method: channel.Flow, now: float) -> None:
    """Like RabbitMQ, do not pause deliveries: clients limit them with prefetch."""
    if not method.active:
        raise NotImplementedHere("active=false")
    here.reply(channel.FlowOk(active=True))


def flow_ok(here: Channel, method: channel.FlowOk, now: float) -> None:
    """The broker never sends channel.flow, so this answer is ignored."""


def access_request(here: Channel, method: access.Request, now: float) -> None:
    """Answer with a ticket, which means nothing: AMQP 0-8 had it, and old clients still ask (RabbitMQ)."""
    here.reply(access.RequestOk(ticket=1))


def confirm_select(here: Channel, method: confirm.Select, now: float) -> None:
    """Begin to confirm publishes."""
    if here.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    # A second confirm.select is allowed, and must not begin the numbers anew.
    if here.confirms is None:
        here.confirms = here.feed.make_confirms()
        here.session.begin_confirms()
    if not method.nowait:
        here.reply(confirm.SelectOk())


def tx_select(here: Channel, method: tx.Select, now: float) -> None:
    """Begin to collect publishes and acknowledgements until a commit."""
    if here.confirms is not None:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if here.transaction is None:
        # Imported here: few clients use transactions.
        from plugins.engines.broker.public import Transaction

        here.transaction = Transaction(routes_at_once=True)
    here.reply(tx.SelectOk())


def tx_commit(here: Channel, method: tx.Commit, now: float) -> None:
    """Commit the transaction."""
    # A commit cannot be refused: everything was checked when it came.  The answer waits for the disk
    # (``Session``).
    _transaction(here).commit(here, now)
    here.reply(tx.CommitOk())


def tx_rollback(here: Channel, method: tx.Rollback, now: float) -> None:
    """Roll the transaction back."""
    _transaction(here).roll_back()
    here.reply(tx.RollbackOk())


def _transaction(here: Channel) -> Transaction:
    if here.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return here.transaction


# Not here: channel.open and close, which the conversation answers itself, and basic.publish, ack, nack and
# reject, which come as events.  So none of them is looked up in this table.
METHODS: dict[type[Method], Callable[[Channel, Any, float], None]] = {
    access.Request: access_request,
    basic.Cancel: basic_methods.cancel,
    basic.CancelOk: basic_methods.cancel_ok,
    basic.Consume: basic_methods.consume,
    basic.Get: basic_methods.get,
    basic.Qos: basic_methods.qos,
    basic.Recover: basic_methods.recover,
    basic.RecoverAsync: basic_methods.recover_async,
    channel.Flow: flow,
    channel.FlowOk: flow_ok,
    confirm.Select: confirm_select,
    exchange.Bind: exchange_methods.bind,
    exchange.Declare: exchange_methods.declare,
    exchange.Delete: exchange_methods.delete,
    exchange.Unbind: exchange_methods.unbind,
    queue.Bind: queue_methods.bind,
    queue.Declare: queue_methods.declare,
    queue.Delete: queue_methods.delete,
    queue.Purge: queue_methods.purge,
    queue.Unbind: queue_methods.unbind,
    tx.Commit: tx_commit,
    tx.Rollback: tx_rollback,
    tx.Select: tx_select,
}
"""What to do for each method that a client may send on an open channel."""
