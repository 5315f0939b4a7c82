"""RabbitMQ's management HTTP API, as its tools use it."""
