"""Front end: makes a client of each connection."""

from __future__ import annotations

from kernel_beanstalk.client import BeanstalkClient
from plugins.engines.broker.contract import FrontEndSetup
from plugins.engines.broker.public import Accepted, StreamFrontEnd


def make_front_end(setup: FrontEndSetup) -> StreamFrontEnd:
    """Return a listener whose clients speak beanstalk."""

    def begin(accepted: Accepted) -> BeanstalkClient:
        client = BeanstalkClient(setup.engine, accepted, setup.options)
        client.start()
        return client

    return StreamFrontEnd(setup.engine, setup.options, "beanstalk", begin, subprotocols=("beanstalk",))
