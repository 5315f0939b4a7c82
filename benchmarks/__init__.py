"""Figures of the kernel side by side with those of its peers.  ``README.md`` has the rules of measuring here."""
