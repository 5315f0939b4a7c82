"""Marks of tests that need what only some systems have."""

from __future__ import annotations

import select
import sys

import pytest

LINUX = sys.platform == "linux"

linux_only = pytest.mark.skipif(not LINUX, reason="Linux alone has what this tests")
lends = pytest.mark.skipif(
    not hasattr(select, "epoll"), reason="connections are lent only where there is epoll"
)
