"""A route with the router ``by-prefix``, whole."""

from __future__ import annotations

import pytest

from kernel.contracts.errors import WouldBlock
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan
from tests.plans import route

__all__ = ["kernel_factory"]


@pytest.mark.parametrize("when_full", ["block", "drop-newest"])
def test_the_only_reader_of_everything_may_change_its_mind(
    kernel_factory: KernelFactory, when_full: str
) -> None:
    engines = [EnginePlan(name=name, kind="native") for name in ("app", "reader")]
    marks = {"when_full": when_full}
    kernel = kernel_factory(*engines, route("app", "reader", router="by-prefix", marks=marks))
    with kernel.open("app") as app, kernel.open("reader") as reader:

        def get(*bodies: bytes) -> list[bytes]:
            # Does what the reader has asked for.
            app.serve()
            for body in bodies:
                app.send(body)
            got = []
            while True:
                try:
                    got.append(bytes(reader.receive_nowait()))
                except WouldBlock:
                    return got

        assert get(b"milk") == []
        reader.subscribe("prefix:")
        assert get(b"milk", b"teapot") == [b"milk", b"teapot"]
        reader.subscribe("prefix:tea")
        reader.unsubscribe("prefix:")
        assert get(b"milk", b"teapot") == [b"teapot"]
        reader.subscribe("prefix:")
        assert get(b"milk", b"teapot") == [b"milk", b"teapot"]
        with kernel.open("reader"):
            # Another one, who wants nothing.
            assert get(b"milk") == [b"milk"]
