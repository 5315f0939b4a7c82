"""Hub: what one connection sends reaches all others, at a cost that is linear.

docs/decisions/0023-hubs.md has the reasons.
"""
