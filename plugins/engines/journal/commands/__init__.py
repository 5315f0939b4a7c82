"""``kernel journal ...``: one file for what belongs together; ``group.py`` has the list."""
