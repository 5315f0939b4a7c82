"""How each type of exchange finds the bindings that match a message."""
