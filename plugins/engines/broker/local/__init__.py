"""The in-process front end: the broker in an application's own process, without a socket."""
