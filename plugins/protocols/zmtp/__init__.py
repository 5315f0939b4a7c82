"""ZMTP 3.1, 3.0, 2.0 and 1.0: the protocol of ØMQ, sans-I/O (docs/decisions/0033-zmtp.md)."""
