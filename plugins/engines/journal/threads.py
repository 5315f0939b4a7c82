"""Runs a blocking call in a thread that ends with the call."""

from __future__ import annotations

from kernel.hosting.in_thread import in_thread as in_thread
