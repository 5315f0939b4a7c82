"""Dissectors: how ``kernel inspect`` decodes protocols in captured packets.

Nothing here is on a message's path.

A dissector is not a silent protocol implementation (``docs/decisions/0014-inspect.md``).  It sees both sides,
may have missed the handshake, and has gaps where packets were not captured.  A protocol ends the conversation
at the first malformed byte; a dissector reports it and continues.  So dissectors use the codecs of the
protocols (frames, methods, chunks, envelopes) and none of their conversations.

Three rules hold for all of them:

* What cannot be known is not shown.  After a gap a dissector forgets counts, current envelopes and unfinished
  messages, instead of showing figures that may be wrong.
* Everything that is remembered has a limit, because a capture may be endless.
* Passwords and other secrets are not shown.
"""
