"""STOMP as a front end of the broker."""
