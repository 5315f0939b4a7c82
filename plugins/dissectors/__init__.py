"""Dissectors: how ``kernel inspect`` decodes protocols in captured packets.

Nothing here is on a message's path.
"""
