"""MQTT brokers and clients."""
