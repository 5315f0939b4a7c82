"""Decoder of a conversation with CURVE: commands in clear, and after the handshake frames in boxes."""

from __future__ import annotations

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.strides import cut
from plugins.protocols.zmtp.decoder import Decoder
from plugins.protocols.zmtp.faults import HandshakeFault
from plugins.protocols.zmtp.frames import COMMAND, MORE, run_length
from plugins.protocols.zmtp.sealing import NAME, OVERHEAD, Opener, plain_flags


class SealedDecoder(Decoder):
    """``Decoder`` for frames that are opened one by one.  It has the same limits.

    A box is opened as a whole, so large frames do without a buffer of their own.
    """

    buffers_large = False
    messages_in_frames = False

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
                begin, position = position, following
                if self.opener is None:
                    self._on_command(data[start:following])
                    continue
                self._take(*self.opener.open(data, start, following))
                # Most often the header tells that no frame like this one follows.
                if data.startswith(data[begin:start], following):
                    position += self._open_run(self.opener, data, begin, head, size)
        # Also after an error: the messages before the faulty frame count as received.
        finally:
            self._end_batch()
            if self.opener is not None:
                self.opener.end_read()
        return position

    def _open_run(self, opener: Opener, data: bytes, begin: int, head: int, size: int) -> int:
        """Take the frames behind that at ``begin`` which look as it does.

        Return how many octets they have.
        """
        stride = head + size
        most = (len(data) - begin) // stride
        count = run_length(data, begin, stride, range(head + len(NAME)), most) - 1
        if not count:
            return 0
        # Fewer may open than look alike. Those behind are looked at by ``_frames``, one by one, so the fault
        # is found and named there.
        texts, opened = opener.open_run(data, begin + stride, head, size, count)
        text_size = len(texts) // count
        octets = opened * text_size
        # The octets of flags of all texts. If one of them is not 0, there are commands or parts among the
        # messages.
        if self._parts or any(texts[:octets:text_size]):
            for at in range(0, octets, text_size):
                self._take(plain_flags(texts[at]), bytes(texts[at + 1 : at + text_size]))
        elif opened:
            # Messages of one part.
            self._check_size(text_size - 1)
            self._append(multipart=False)
            # An octet of flags is before each of them.
            self._bodies += cut(texts, 0, (1, text_size - 1), opened)
        return opened * stride

    def _check_outer(self, flags: int, size: int) -> None:
        if self.opener is None:
            if not flags & COMMAND:
                raise HandshakeFault("a message before the handshake is over", "unexpected-command")
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
