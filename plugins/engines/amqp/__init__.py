"""The AMQP 0-9-1 server: the broker's face for AMQP clients."""
