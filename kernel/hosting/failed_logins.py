"""Failed logins: how long whoever guesses at passwords has to wait for each answer."""

from __future__ import annotations

LOGIN_DELAY = 1.0
"""Seconds after which a failed login is answered, so that passwords and keys cannot be tried quickly."""
