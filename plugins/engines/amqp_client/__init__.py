"""AMQP 0-9-1 client: from and to a broker somewhere else."""
