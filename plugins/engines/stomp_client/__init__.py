"""STOMP client: publishes to a broker elsewhere, and sends what it has subscribed to on the routes."""
