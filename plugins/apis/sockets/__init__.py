"""Sockets of ØMQ for programs: ``from kernel.sockets import Context`` (docs/decisions/0035-sockets.md)."""
