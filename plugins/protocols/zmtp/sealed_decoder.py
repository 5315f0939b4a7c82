"""Decoder of a conversation with CURVE: commands in clear, and after the handshake frames in boxes."""

from __future__ import annotations

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.zmtp.decoder import Decoder
from plugins.protocols.zmtp.frames import COMMAND, MORE
from plugins.protocols.zmtp.sealing import OVERHEAD


class SealedDecoder(Decoder):
    """``Decoder`` for frames that are opened one by one.  It has the same limits."""

    def _frames(self, data: bytes) -> int:
        measure = self._framing.measure
        position, end = 0, len(data)
        try:
            while position < end:
                flags, head, size = measure(data, position)
                self._check_flags(flags)
                if not head:
                    self._needed = end - position + 1
                    return position
                self._check_outer(flags, size)
                start = position + head
                following = start + size
                if following > end:
                    self._needed = following - position
                    return position
                position = following
                if self.opener is None:
                    self._on_command(data[start:following])
                else:
                    self._take(*self.opener.open(data, start, following))
        # Also after an error: the messages before the faulty frame count as received.
        finally:
            self._end_batch()
            if self.opener is not None:
                self.opener.end_read()
        return position

    def _check_outer(self, flags: int, size: int) -> None:
        if self.opener is None:
            if not flags & COMMAND:
                raise RemoteProtocolError("a message before the handshake is over")
            self._check_command(size)
            return
        # Whether the frame is one of several parts is said in the box.
        if flags & MORE:
            raise RemoteProtocolError(f"a MESSAGE in a frame with flags {flags:#04x}")
        # What is in the box is not known yet: a command may be as large as commands may be.
        if size - OVERHEAD > self.max_command:
            self._check_size(size - OVERHEAD)

    def _take(self, flags: int, body: bytes) -> None:
        if flags & COMMAND:
            self._check_command(len(body))
            self._on_command(body)
            return
        self._check_size(len(body))
        if flags & MORE:
            self._take_part(body)
        else:
            self._end_message(body)
