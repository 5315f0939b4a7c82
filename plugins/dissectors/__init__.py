"""Dissectors: protocols as ``kernel inspect`` reads them in captured packets.  Nothing here is ever on a message's path."""
