"""AMQP brokers side by side: ours and RabbitMQ, with the same clients on both."""
