"""AMQP 0-9-1 with RabbitMQ's extensions, sans-I/O: bytes and time in, events and bytes out."""
