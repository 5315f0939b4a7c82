"""Sockets of ØMQ for applications: ``from kernel.sockets import Context`` (docs/decisions/0035-sockets.md)."""
