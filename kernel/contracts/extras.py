"""Extras: packages of others that only a part of the project needs; they are installed on request."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

from kernel.contracts.errors import PluginError


class Extra(NamedTuple):
    """What ``pip install messaging-kernel[NAME]`` installs, for one part of the project."""

    name: str
    lack: str
    """Who needs what, as "a journal needs pyarrow"."""
    modules: tuple[str, ...]
    """One module of each package that is needed."""

    def is_installed(self) -> bool:
        """Return whether all of it is there.  Nothing of it is imported."""
        return all(map(_is_there, self.modules))

    def complaint(self) -> str:
        """Return what is lacking, and the command that installs it."""
        return f"{self.lack}: pip install 'messaging-kernel[{self.name}]'"

    def need(self) -> None:
        """Raise ``PluginError`` with the complaint if something of it is missing."""
        if not self.is_installed():
            raise PluginError(self.complaint())


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # The package above it is missing.
        return False
