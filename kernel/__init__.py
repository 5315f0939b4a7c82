"""The messaging kernel: dispatcher, pipes, poll threads, and the contracts that plugins keep.

Start reading at ``kernel/contracts/`` (what flows and who may call whom), then ``kernel/pipes/``,
``kernel/dispatcher/`` and ``kernel/threads/``.  Importing this package imports nothing heavy.
"""

from __future__ import annotations

import pluggy

API_LEVEL = 1
"""Raised when a hook or a contract method is removed; a plugin may demand at most this level."""

hookimpl = pluggy.HookimplMarker("kernel")
"""Marks a function of a plugin module as the implementation of a hook of :mod:`kernel.hookspecs`."""

__all__ = ["API_LEVEL", "hookimpl"]
