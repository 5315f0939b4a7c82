"""A plugin for pytest that has pyzmq's tests of steered proxies run.

They leave themselves out since libzmq 4.3.5 has these proxies no more; the backend has them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

_LAST = (4, 3, 4)
"""The last version of libzmq with them."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if item.path.name != "test_proxy_steerable.py":
        return (yield)
    import zmq

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zmq, "zmq_version_info", lambda: _LAST)
        return (yield)
