"""The journal: an engine stores messages on disk, another replays them; ``kernel journal`` has the tools.

Start with ``writer.py`` (files), then ``committer.py`` (the thread that writes) and ``engine.py`` (ports).
``plugins.protocols.journal_format`` defines the bytes.
"""
