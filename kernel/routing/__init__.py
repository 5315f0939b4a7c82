"""The kernel's own routers: which pipes of a route get a message.  Read fan_out.py first, the simplest."""
