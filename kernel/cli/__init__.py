"""The ``kernel`` command: one file a subcommand, loaded when it is used.  Start with ``main.py``."""
