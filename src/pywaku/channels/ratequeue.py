"""What waits for its turn to be sent: by right first, then channel by channel in turns, then in order."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import IntEnum


class Kind(IntEnum):
    """What is to be sent, in the order of right. Those after `RETRY` go at once or not at all."""

    MESSAGE = 0
    """A message in one segment, sent for the first time."""
    SEGMENT = 1
    """A segment of a larger message, sent for the first time."""
    RETRY = 2
    """Anything sent before: not acknowledged, or asked for by a repair request."""
    EPHEMERAL = 3
    SYNC = 4
    """A periodic sync message: the next one says the same and more."""

    @property
    def waits(self) -> bool:
        """Is it worth sending later?"""
        return self <= Kind.RETRY


@dataclass(frozen=True, slots=True)
class Transmission:
    """One message on the wire. Its key is unique in its channel while it waits, like `request-id:3`."""

    channel_id: str
    key: str
    kind: Kind


class RateQueue:
    """Transmissions that wait. Channels take turns, so that a large message of one holds up no other."""

    __slots__ = ("_kinds", "_waiting")

    def __init__(self) -> None:
        self._kinds: dict[Kind, OrderedDict[str, OrderedDict[str, Transmission]]] = {
            kind: OrderedDict() for kind in Kind if kind.waits
        }
        self._waiting: dict[tuple[str, str], Kind] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, transmission: Transmission) -> bool:
        return (transmission.channel_id, transmission.key) in self._waiting

    @property
    def best(self) -> Kind | None:
        """The kind of what comes next; None if nothing waits."""
        return next((kind for kind, channels in self._kinds.items() if channels), None)

    def push(self, transmission: Transmission) -> None:
        """Let it wait behind those of its kind and channel."""
        channels = self._kinds[transmission.kind]
        channels.setdefault(transmission.channel_id, OrderedDict())[transmission.key] = transmission
        self._waiting[transmission.channel_id, transmission.key] = transmission.kind

    def pop(self) -> Transmission:
        """The one whose turn it is."""
        kind = self.best
        if kind is None:
            raise IndexError("nothing waits")
        channels = self._kinds[kind]
        channel_id, waiting = next(iter(channels.items()))
        transmission = next(iter(waiting.values()))
        self.discard(channel_id, transmission.key)
        if channel_id in channels:
            channels.move_to_end(channel_id)
        return transmission

    def displace_for(self, kind: Kind) -> Transmission | None:
        """Make room for a kind: the last of the least right, of the channel with most, if of less right."""
        worst = next((other for other in reversed(self._kinds) if self._kinds[other]), None)
        if worst is None or worst <= kind:
            return None
        channels = self._kinds[worst]
        channel_id = max(channels, key=lambda channel_id: len(channels[channel_id]))
        last = next(reversed(channels[channel_id].values()))
        self.discard(channel_id, last.key)
        return last

    def discard(self, channel_id: str, key: str) -> bool:
        """Take it out, wherever it is; was it there?"""
        kind = self._waiting.pop((channel_id, key), None)
        if kind is None:
            return False
        channels = self._kinds[kind]
        del channels[channel_id][key]
        if not channels[channel_id]:
            del channels[channel_id]
        return True

    def discard_channel(self, channel_id: str) -> int:
        """Take out everything of a channel; how much was it?"""
        keys = [
            key
            for channels in self._kinds.values()
            for key in channels.get(channel_id, OrderedDict[str, Transmission]())
        ]
        return sum(self.discard(channel_id, key) for key in keys)
