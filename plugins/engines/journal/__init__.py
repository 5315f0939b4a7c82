"""The journal as an engine: a feed goes in and is kept; another engine plays it back; ``kernel journal`` looks at it.

Begin with ``writer.py`` (files) and ``engine.py`` (ports).  The bytes are ``plugins.protocols.journal_format``'s affair.
"""
