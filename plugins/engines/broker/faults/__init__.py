"""A broker for tests: it records what passes, and fails on demand.  Read ``control.py`` first."""
