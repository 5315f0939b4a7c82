"""Patterns: whose turn it is, and what of a message is address.

One file for each pattern.  Read base.py first.
"""

from __future__ import annotations

from plugins.apis.sockets.patterns.base import Pattern
from plugins.apis.sockets.patterns.publish_subscribe import Pub, Sub, Xpub, Xsub
from plugins.apis.sockets.patterns.rep import Rep
from plugins.apis.sockets.patterns.req import Req
from plugins.apis.sockets.patterns.router import Router, Stream
from plugins.apis.sockets.patterns.shared_out import Dealer, Pair, Pull, Push
from plugins.apis.sockets.patterns.single_part import Client, Dish, Gather, Radio, Scatter, Server

PATTERNS: dict[str, type[Pattern]] = {
    each.kind: each
    for each in (
        *(Pub, Sub, Xpub, Xsub, Push, Pull, Pair, Req, Rep, Dealer, Router, Stream),
        *(Client, Server, Radio, Dish, Scatter, Gather),
    )
}
"""By the type of the socket."""

__all__ = ["PATTERNS", "Pattern"]
