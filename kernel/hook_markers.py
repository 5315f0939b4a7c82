"""The marks of hooks.  Not in the package itself: ``import kernel`` would import pluggy, 7 of its 9 ms."""

from __future__ import annotations

import pluggy

hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker("kernel")
"""Marks a function of a plugin module as the implementation of a hook of :mod:`kernel.hookspecs`."""

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker("kernel")
"""Marks a function of a plugin as a hook of the plugin's own (:class:`kernel.contracts.kinds.KindGroup`)."""
