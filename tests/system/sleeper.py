"""A process that never comes up."""

import signal

signal.pause()
