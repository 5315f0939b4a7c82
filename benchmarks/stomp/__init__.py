"""STOMP brokers and clients."""
