"""The beanstalk front end as a plugin.  Imports nothing heavy: ``_create`` does, when a listener is made."""

from __future__ import annotations

from collections.abc import Iterable

from kernel import hookimpl
from kernel_beanstalk.options import BeanstalkOptions
from plugins.engines.broker.contract import FrontEnd, FrontEndKind, FrontEndSetup

REQUIRES_API_LEVEL = 1


@hookimpl
def register_front_ends() -> Iterable[FrontEndKind]:
    """Offer protocol ``beanstalk`` to brokers."""
    return [
        FrontEndKind(
            name="beanstalk",
            summary="jobs in tubes, as beanstalkd's clients want them",
            options=BeanstalkOptions,
            create=_create,
        )
    ]


def _create(setup: FrontEndSetup) -> FrontEnd:
    from kernel_beanstalk.front_end import make_front_end

    return make_front_end(setup)
