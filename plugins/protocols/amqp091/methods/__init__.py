"""The methods of AMQP 0-9-1, one module a class.  Generated from definition.toml, but for ``method``."""
