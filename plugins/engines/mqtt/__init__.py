"""MQTT 3.1.1 and 5.0: a front end of the broker."""
