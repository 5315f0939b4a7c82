"""``python -m kernel``: the same as the ``kernel`` command."""

from __future__ import annotations

from kernel.cli.main import main

if __name__ == "__main__":
    main()
