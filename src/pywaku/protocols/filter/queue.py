"""What waits to be pushed to one subscriber: bounded, and sent in as few writes as it can be."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pywaku.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait for one subscriber, and about how much leaves in one write.

    The pushes of a message are the same bytes for all subscribers, and are in memory once.
    """

    messages: int = 1024
    bytes: int = 2 * 1024 * 1024
    write_size: int = 128 * 1024

    def __post_init__(self) -> None:
        if self.messages < 1 or self.bytes < 1 or self.write_size < 1:
            raise InvalidInput("a queue has room for at least one message, one byte and one-byte writes")


class PushQueue:
    """Framed pushes in their order. One that finds no room is not taken: the newest is what is lost."""

    __slots__ = ("_bytes", "_frames", "_limits")

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._frames: deque[bytes] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def size(self) -> int:
        """The bytes that wait."""
        return self._bytes

    def put(self, frame: bytes) -> bool:
        """Add a push; False if there is no room for it."""
        limits, size = self._limits, self._bytes + len(frame)
        if len(self._frames) >= limits.messages or size > limits.bytes:
            return False
        self._frames.append(frame)
        self._bytes = size
        return True

    def take(self) -> tuple[bytes, int]:
        """What leaves in the next write, and how many pushes that is: all, up to about the write size."""
        frames = self._frames
        if len(frames) == 1:
            self._bytes = 0
            return frames.popleft(), 1
        taken: list[bytes] = []
        size = 0
        while frames and (not taken or size + len(frames[0]) <= self._limits.write_size):
            frame = frames.popleft()
            taken.append(frame)
            size += len(frame)
        self._bytes -= size
        return b"".join(taken), len(taken)
