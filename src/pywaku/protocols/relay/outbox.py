"""What waits to be sent to one relay peer: bounded, control first, batched into few frames and one write.

Every peer has an outbox of its own, so that a slow peer costs only itself: when its outbox is full, the
newest message for it is dropped and counted, and nobody waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.protocols.relay.control import merge, split
from pywaku.wire import varint
from pywaku.wire.relay import Rpc, encode_rpc

MAX_FRAME_MESSAGES: Final = 100
"""Messages in one RPC; other implementations bound what they take."""

MAX_FRAME_SIZE: Final = 64 * 1024
"""About the size of one RPC; a single message beyond it goes alone."""

_STALE_IDS: Final = 64  # ids of messages that have left, which are not worth forgetting
_MERGE_EVERY: Final = 32  # control RPCs kept before they are merged into one


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """How much may wait for one peer, and from when on a publisher should hold back."""

    messages: int = 4096
    bytes: int = 8 * 1024 * 1024
    write_size: int = 256 * 1024
    high_water: float = 0.5
    low_water: float = 0.25

    def __post_init__(self) -> None:
        if self.messages < 1 or self.bytes < 1 or self.write_size < 1:
            raise InvalidInput("an outbox has room for at least one message, one byte and one-byte writes")
        if not 0 <= self.low_water <= self.high_water <= 1:
            raise InvalidInput("0 ≤ low_water ≤ high_water ≤ 1 is what an outbox needs")


class Outbox:
    """The queue of one peer. Messages keep their order; control overtakes them."""

    __slots__ = (
        "_bytes",
        "_control",
        "_ids",
        "_limits",
        "_messages",
        "congested",
        "control_dropped",
        "dropped",
    )

    def __init__(self, limits: OutboxLimits | None = None) -> None:
        self._limits = limits or OutboxLimits()
        self._messages: deque[tuple[bytes, bytes]] = deque()
        self._ids: set[bytes] = set()  # of those messages, and of some that have left
        self._control: list[Rpc] = []
        self._bytes = 0
        self.congested = False
        """Above the high-water mark, and not yet down at the low-water mark again."""
        self.dropped = 0
        """Messages that found no room."""
        self.control_dropped = 0
        """Message ids in control traffic that found no room."""

    def __len__(self) -> int:
        return len(self._messages)

    def __bool__(self) -> bool:
        return bool(self._messages) or bool(self._control)

    @property
    def size(self) -> int:
        """The bytes of the messages that wait."""
        return self._bytes

    def put_control(self, rpc: Rpc) -> None:
        """Add control traffic; it is merged with what waits."""
        self._control.append(rpc)
        if len(self._control) >= _MERGE_EVERY:
            self._merge_control()

    def put_messages(self, messages: Sequence[tuple[bytes, bytes]]) -> int:
        """Add messages (id and encoded `publish` entry), in order; returns how many found room.

        Those that find room are the first ones of `messages`, except that a smaller one may still fit where a
        larger one did not.
        """
        limits = self._limits
        taken = 0
        queue = self._messages
        size = self._bytes
        for message in messages:
            length = len(message[1])
            if len(queue) >= limits.messages or size + length > limits.bytes:
                self.dropped += 1
                continue
            queue.append(message)
            self._ids.add(message[0])
            size += length
            taken += 1
        self._bytes = size
        if not self.congested and (
            len(queue) > limits.messages * limits.high_water or size > limits.bytes * limits.high_water
        ):
            self.congested = True
        return taken

    def forget(self, message_ids: AbstractSet[bytes]) -> int:
        """Take out messages that the peer no longer wants (IDONTWANT); returns how many."""
        before = len(self._messages)
        # Whoever sends ids of no message that waits does not make us look through all that do.
        if not self._ids.isdisjoint(message_ids):
            self._messages = deque(message for message in self._messages if message[0] not in message_ids)
            self._ids = {message[0] for message in self._messages}
            self._bytes = sum(len(part) for _, part in self._messages)
            self._settle()
        return before - len(self._messages)

    def take(self) -> bytes:
        """What leaves in the next write: all that waits, in frames, up to about the write size."""
        frames: list[bytes] = []
        body: list[bytes] = []
        body_size = total = 0
        if self._control:
            self._merge_control()
            for rpc in split(self._control[0], MAX_FRAME_SIZE):
                if body:
                    frames += (varint.encode(body_size), *body)
                control = encode_rpc(rpc)
                body, body_size = [control], len(control)
                total += body_size
            self._control.clear()
        # The last control RPC and the messages after it share a frame: concatenated parts are one RPC.
        queue = self._messages
        write_size = self._limits.write_size
        count = taken = 0
        while queue:
            length = len(queue[0][1])
            if total and total + length > write_size:
                break
            if body and (count == MAX_FRAME_MESSAGES or body_size + length > MAX_FRAME_SIZE):
                frames += (varint.encode(body_size), *body)
                body = []
                body_size = count = 0
            body.append(queue.popleft()[1])
            body_size += length
            total += length
            taken += length
            count += 1
        if body:
            frames += (varint.encode(body_size), *body)
        if len(self._ids) > 2 * len(queue) + _STALE_IDS:
            self._ids = {message[0] for message in queue}
        self._bytes -= taken
        self._settle()
        return b"".join(frames)

    def _merge_control(self) -> None:
        merged, lost = merge(self._control)
        self.control_dropped += lost
        self._control = [merged]

    def _settle(self) -> None:
        limits = self._limits
        if (
            self.congested
            and len(self._messages) <= limits.messages * limits.low_water
            and self._bytes <= limits.bytes * limits.low_water
        ):
            self.congested = False
