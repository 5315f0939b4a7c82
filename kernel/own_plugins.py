"""Finds the plugins of this distribution also where another package ``plugins`` hides them.

They are in the top-level package ``plugins``, which lies beside this package.  An application may have a
folder of its own with that name, and Python takes the first one on its path.  A finder at the end of Python's
list is asked for what no other finder has found: for ``plugins.apis`` and its like it looks beside this
package.  So the application's package stays what it is, and what it does not have itself is found here.

Two cases are left, in which Python asks no finder or finds something else: a *module* ``plugins.py`` has no
submodules, and an application's ``plugins`` may have an ``engines`` of its own.  ``hidden_by`` names the file
then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_PACKAGE = "plugins"
_FOLDER = f"{__file__.rpartition('/')[0].rpartition('/')[0]}/{_PACKAGE}"


class _LastFinder:
    """Finds the folders of our ``plugins`` for whoever has imported another package of that name."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, or None (the protocol of ``sys.meta_path``)."""
        package, _, folder = name.partition(".")
        # What is deeper is found by Python itself: a subpackage that was found here has the path of its own
        # folder.
        if package != _PACKAGE or not folder or "." in folder:
            return None
        return PathFinder.find_spec(name, [_FOLDER])


def find_behind_others() -> None:
    """Have our plugins found also behind another package of their name."""
    if _LastFinder not in sys.meta_path:
        sys.meta_path.append(_LastFinder)


def hidden_by(error: ImportError) -> str:
    """Return the file that hides a module of ours, which could not be imported; empty if none does."""
    name = error.name or ""
    if name.partition(".")[0] != _PACKAGE:
        return ""
    # The innermost package first: ``plugins`` may be the application's and ``plugins.engines`` ours.
    while name:
        found = sys.modules.get(name)
        file = getattr(found, "__file__", None)
        if file is not None:
            return "" if file.startswith(_FOLDER + "/") else file
        name = name.rpartition(".")[0]
    return ""
