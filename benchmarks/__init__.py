"""Measurements of the kernel side by side with its peers.  ``README.md`` has the rules."""
