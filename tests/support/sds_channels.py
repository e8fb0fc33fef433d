"""SDS channels on a time of the test's own, and messages made by hand."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, TypeVar

from pywaku.sds import Change, Delivered, Outcome, SdsChannel, SdsEvent, SdsOptions, Table, Transmission
from pywaku.sds.bloom import BloomFilter, BloomShape
from pywaku.wire.sds import HistoryEntry, SdsMessage, decode_sds, encode_sds

START_MS = 1_700_000_000_000
CHANNEL = "room"
SHAPE = BloomShape(10_000, 0.001)

_Event = TypeVar("_Event")


Rows = dict[tuple[Table, str], bytes]
"""What a store would have of a channel."""


def save(rows: Rows, changes: Iterable[Change]) -> None:
    """Write the changes of a step."""
    for table, key, value in changes:
        if value is None:
            rows.pop((table, key), None)
        else:
            rows[table, key] = value


class Side:
    """A channel whose time is told in milliseconds since the start, and all that came out of it."""

    def __init__(
        self, name: str, *, seed: int = 1, channel: SdsChannel | None = None, **options: Any
    ) -> None:
        self.now_ms = 0
        self.sds = channel or SdsChannel(
            CHANNEL,
            name,
            SdsOptions(**options),
            rng=random.Random(seed),
            now_ns=self.now_ns,
            track_changes=True,
        )
        self.events: list[SdsEvent] = []
        self.out: list[Transmission] = []

    @property
    def now_ns(self) -> int:
        """The time for the channel."""
        return (START_MS + self.now_ms) * 1_000_000

    def at(self, now_ms: int) -> Side:
        """Go to a time, without a tick."""
        self.now_ms = now_ms
        return self

    def tick(self, now_ms: int | None = None) -> list[Transmission]:
        """Go to a time and do what is due: what is to be sent."""
        if now_ms is not None:
            self.now_ms = now_ms
        self.sds.tick(self.now_ns)
        self._gather()
        taken = self.out
        self.out = []
        return taken

    def send(self, content: bytes = b"content", **arguments: Any) -> Transmission:
        """A message, sent at once."""
        made = self.sds.send(content, self.now_ns, **arguments)
        self.sds.sent(made.message_id, self.now_ns)
        self._gather()
        return made

    def sync(self) -> bytes:
        """A sync message; there has to be something to say."""
        assert self.sds.sync(self.now_ns)
        return self.sds.take_transmissions()[-1].data

    def hear(self, *messages: bytes | SdsMessage, hint: bytes | None = None) -> Outcome:
        """Receive messages; what became of the last."""
        outcome = Outcome.MALFORMED
        for message in messages:
            data = message if isinstance(message, bytes) else encode_sds(message)
            outcome = self.sds.receive(data, self.now_ns, retrieval_hint=hint).outcome
            self._gather()
        return outcome

    def _gather(self) -> None:
        self.events += self.sds.take_events()
        self.out += self.sds.take_transmissions()

    def take(self, kind: type[_Event]) -> list[_Event]:
        """The events of a kind, once."""
        found = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found

    def delivered(self) -> list[str]:
        """The ids that were delivered since this was asked last."""
        return [event.message_id for event in self.take(Delivered)]


def decoded(transmission: Transmission | bytes) -> SdsMessage:
    """What is in a transmission."""
    return decode_sds(transmission if isinstance(transmission, bytes) else transmission.data)


def bloom(ids: Iterable[str]) -> bytes:
    """A filter with these ids, in the default shape."""
    made = BloomFilter(SHAPE)
    for one in ids:
        made.insert(one)
    return made.to_bytes()


def entries(*ids: str, sender_id: str | None = None, hint: bytes | None = None) -> tuple[HistoryEntry, ...]:
    """A causal history or repair request."""
    return tuple(HistoryEntry(one, hint, sender_id) for one in ids)


def content(
    message_id: str, *after: str, lamport: int = START_MS, sender: str = "bob", **fields: Any
) -> SdsMessage:
    """A content message by hand; `after` is its causal history."""
    fields.setdefault("causal_history", entries(*after))
    fields.setdefault("content", b"of " + message_id.encode())
    return SdsMessage(sender, message_id, fields.pop("channel", CHANNEL), lamport, **fields)


def sync(*after: str, lamport: int = START_MS, sender: str = "bob", **fields: Any) -> SdsMessage:
    """A sync message by hand."""
    fields.setdefault("causal_history", entries(*after))
    return SdsMessage(sender, "sync-1", CHANNEL, lamport, **fields)
