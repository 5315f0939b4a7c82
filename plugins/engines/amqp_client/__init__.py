"""AMQP 0-9-1 client: publishes to another broker, and consumes from it."""
