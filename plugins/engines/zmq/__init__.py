"""A socket of ØMQ as an engine (docs/zmq.md)."""
