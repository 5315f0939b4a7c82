"""The commands ``kernel journal ...``; ``group.py`` has the list."""
