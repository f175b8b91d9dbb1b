"""Messages between a run and its workers: eight bytes of length, then the content."""

import socket
import struct

_LENGTH = struct.Struct("!Q")
_CHUNK = 1 << 20


class Channel:
    """One end of a stream socket. ``OSError``: the other end is gone, or does not read for ``seconds``."""

    def __init__(self, end: socket.socket, seconds: float | None = None):
        self.end = end
        end.settimeout(seconds)

    def fileno(self) -> int:
        """Return the descriptor, to wait for messages."""
        return self.end.fileno()

    def send(self, content: bytes) -> None:
        """Send one message."""
        self.end.sendall(_LENGTH.pack(len(content)))
        self.end.sendall(content)

    def receive(self, most: int | None = None) -> bytes:
        """Return the next message; ``EOFError`` where none will come, or one longer than ``most`` bytes."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if most is not None and length > most:
            raise EOFError
        return self._exactly(length)

    def close(self) -> None:
        """Close this end."""
        self.end.close()

    def _exactly(self, length: int) -> bytes:
        found = bytearray()
        while len(found) < length:
            chunk = self.end.recv(min(_CHUNK, length - len(found)))
            if not chunk:
                raise EOFError
            found += chunk
        return bytes(found)
