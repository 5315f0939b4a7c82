"""NATS core as a protocol of the messaging kernel."""
