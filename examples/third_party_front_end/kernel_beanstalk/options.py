"""What can be set of a beanstalk listener."""

from __future__ import annotations

from plugins.engines.broker.contract import ListenerOptions


class BeanstalkOptions(ListenerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A listener for clients of beanstalkd."""

    anonymous: str = "guest"
    """The user of the broker whose permissions count: the protocol has no login."""
    vhost: str = "/"
    """The virtual host whose queues are the tubes."""
    max_body_bytes: int = 65_535
    """The largest job."""
