"""A channel without clock, network or tasks: segmentation, SDS and what was sent, as one machine.

Messages and bytes go in with the time; what is to be saved, sent and told comes out of `take`. What is to be
saved is saved in one transaction before the rest is acted on: a machine made of it goes on from there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, overload

from pywaku.channels.events import (
    ChannelEvent,
    ChunkInfo,
    IrretrievableMessage,
    MessageId,
    MessageReceived,
    MessageSent,
    ReliableMessageReceived,
    ReliableMessageSendError,
    SendingMessageIrrecoverableError,
)
from pywaku.channels.options import ALL_KNOWN, ANY, ReliableChannelOptions
from pywaku.channels.ratequeue import Kind
from pywaku.channels.rows import OUTBOX, SEGMENTS, KeptHeads, Row, RowChange, kept_sendings, segment_rows
from pywaku.channels.store import scope_of
from pywaku.channels.tracker import Tracker
from pywaku.errors import DecodeError, InvalidInput
from pywaku.sds import (
    Acknowledged,
    Delivered,
    EphemeralReceived,
    MessagesLost,
    MessagesMissing,
    NotAcknowledged,
    Participant,
    PossiblyAcknowledged,
    Purpose,
    Received,
    SdsChannel,
    Table,
    Transmission,
)
from pywaku.sds.message_ids import unique_id
from pywaku.segments import Event as SegmentEvent
from pywaku.segments import (
    GivenUp,
    PayloadInvalid,
    PayloadIrretrievable,
    PayloadReceived,
    Reassembler,
    SegmentedPayload,
    split,
)
from pywaku.wire.sds import HistoryEntry
from pywaku.wire.segments import Segment, decode_segment, encode_segment

_NS: Final = 1_000_000_000
_SDS: Final = "sds/"


@dataclass(frozen=True, slots=True)
class Outbound:
    """Bytes to be sent. `key` is the request id to send them under; None lets the node choose."""

    sds_id: str
    key: str | None
    kind: Kind
    data: bytes
    repair: bool = False
    """Somebody else has asked for it."""


class _Contents(Sequence[bytes]):
    """Segments as the contents of messages, encoded when they are asked for."""

    def __init__(self, segments: SegmentedPayload) -> None:
        self._segments = segments

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return [self[number] for number in range(len(self))[place]]
        return encode_segment(self._segments[place])


@dataclass(slots=True)
class Step:
    """What came of the calls since the last one.

    What is `settled`, by SDS ids, need not be sent any more, but for repairs.
    """

    changes: list[RowChange] = field(default_factory=list[RowChange])
    outbound: list[Outbound] = field(default_factory=list[Outbound])
    settled: list[str] = field(default_factory=list[str])
    events: list[ChannelEvent] = field(default_factory=list[ChannelEvent])


class Conversation:
    """One participant's side of a channel.

    `now_ns` is nanoseconds since 1970, of a clock that does not jump while this object lives.
    """

    def __init__(
        self,
        channel_id: str,
        sender_id: str,
        options: ReliableChannelOptions,
        *,
        rng: random.Random,
        now_ns: int,
        saved: Iterable[Row] = (),
    ) -> None:
        self.options = options
        tables: dict[str, list[Row]] = {}
        for row in saved:
            tables.setdefault(row.table, []).append(row)
        sds_rows = [
            (Table(row.table.removeprefix(_SDS)), row.key, row.value)
            for table, rows in tables.items()
            if table.startswith(_SDS)
            for row in rows
        ]
        self.sds = SdsChannel.restore(
            channel_id, sender_id, options.sds(), rows=sds_rows, rng=rng, now_ns=now_ns, track_changes=True
        )
        self._kept: KeptHeads = {}
        self.reassembler = Reassembler(
            options.reassembly, kept_sendings(tables.get(SEGMENTS, ()), self._kept), now_ns / _NS
        )
        self.tracker = Tracker((row.key, row.value) for row in tables.get(OUTBOX, ()))
        self._step = Step()

    # Sending

    def new_id(self, payload: bytes, now_ns: int) -> MessageId:
        """An id for a message: keccak256 over the channel, the sender, the time and the payload.

        All channels of a node share its request ids, and clocks may be coarse.
        """
        return unique_id(scope_of(self.sds.channel_id, self.sds.sender_id), now_ns, payload)

    def segments(self, payload: bytes) -> SegmentedPayload | None:
        """The payload in segments; takes its time for a large one. None: it goes as it is."""
        return split(payload, self.options.segmentation) if self.options.wrap_segments else None

    def send(
        self, message_id: MessageId, payload: bytes, segments: SegmentedPayload | None, now_ns: int
    ) -> None:
        """A message for everybody. Raises `LimitExceeded` while too many wait for acknowledgement."""
        recipients = self._recipients()
        if segments is None:
            transmissions = [self.sds.send(payload, now_ns, recipients=recipients)]
            enough = 1
        else:
            size = len(payload) * len(segments) // segments.data_segment_count
            transmissions = self.sds.send_together(
                _Contents(segments), now_ns, size=size, recipients=recipients
            )
            enough = segments.data_segment_count
        ids = [transmission.message_id for transmission in transmissions]
        self.tracker.add(message_id, ids, enough)
        kind = Kind.MESSAGE if len(ids) == 1 else Kind.SEGMENT
        for number, transmission in enumerate(transmissions):
            self._out(transmission, kind, f"{message_id}:{number + 1}")

    def reject(self, message_id: MessageId, error: str) -> None:
        """A message that can never be sent: tell so, and be done with it."""
        self._step.events += [
            SendingMessageIrrecoverableError(message_id, ChunkInfo((0,), 1), error),
            ReliableMessageSendError(message_id, error),
        ]

    def send_ephemeral(self, message_id: MessageId, payload: bytes, now_ns: int) -> None:
        """A message that nobody keeps, nor misses."""
        content = payload
        if self.options.wrap_segments:
            (segment,) = split(payload, self.options.segmentation)
            content = encode_segment(segment)
        transmission = self.sds.send_ephemeral(content, now_ns)
        self._out(transmission, Kind.EPHEMERAL, message_id)

    def sending(self, sds_id: str) -> None:
        """A segment is being handed to the node."""
        self._step.events += self.tracker.sending(sds_id)

    def sent(self, sds_id: str, now_ns: int, hint: bytes) -> None:
        """The network has taken a segment, as the message of this hash."""
        self._step.events += self.tracker.sent(sds_id)
        self.sds.sent(sds_id, now_ns, retrieval_hint=hint)

    def note(self, event: ChannelEvent) -> None:
        """Something else to tell the application."""
        self._step.events.append(event)

    def ephemeral_sent(self, message_id: MessageId) -> None:
        """The network has taken an ephemeral message."""
        self._step.events.append(MessageSent(message_id, ChunkInfo((0,), 1)))

    def not_sent(self, sds_id: str, now_ns: int) -> None:
        """The node could not hand it over: it is tried again later, as if it were not acknowledged."""
        self.sds.sent(sds_id, now_ns)

    def fail(self, sds_id: str, error: str) -> None:
        """It can never be sent, and so its message never delivered."""
        place = self.tracker.place_of(sds_id)
        if place is None:
            return
        segments, handed_over = self.tracker.segments_of(place[0]), self.tracker.handed_over(place[0])
        self._step.events += self.tracker.failed(place[0], error)
        self._step.settled += segments
        for segment in segments:
            # What others may have stays in the log; what nobody will ever get is not to be missed.
            if segment in handed_over:
                self.sds.retire(segment)
            else:
                self.sds.withdraw(segment)

    # Receiving

    def receive(self, data: bytes, now_ns: int, hint: bytes | None) -> Received:
        """A message has come from the network, decrypted; whatever it is."""
        return self.sds.receive(data, now_ns, retrieval_hint=hint)

    def missing(self) -> tuple[HistoryEntry, ...]:
        """The messages that others have and this participant has not."""
        return self.sds.missing()

    def begin_anew(self, now_ns: int) -> None:
        """Nothing could arrive for a while: what has not come yet has all of its time once more."""
        self.sds.begin_anew(now_ns)
        self.reassembler.begin_anew(now_ns / _NS)

    # Time and output

    def tick(self, now_ns: int) -> None:
        """Do what is due."""
        self.sds.tick(now_ns)
        self._reassembled(self.reassembler.tick(now_ns / _NS))

    def next_tick(self) -> int | None:
        """When `tick` is due, in nanoseconds since 1970; None: not before something else happens."""
        due = self.reassembler.next_tick()
        sds = self.sds.next_tick()
        if due == math.inf:
            return sds
        own = int(max(0.0, due) * _NS)  # at once is minus infinity
        return own if sds is None else min(own, sds)

    def take(self, now_ns: int) -> Step:
        """What is to be saved, then told and sent."""
        while events := self.sds.take_events():
            for event in events:
                self._heard(event, now_ns)
        for transmission in self.sds.take_transmissions():
            self._again(transmission)
        step, self._step = self._step, Step()
        step.changes += [
            RowChange(_SDS + change.table.value, change.key, change.value)
            for change in self.sds.take_changes()
        ]
        step.changes += [RowChange(OUTBOX, key, value) for key, value in self.tracker.take_changes()]
        return step

    def participants(self) -> tuple[Participant, ...]:
        """Who was heard, and up to which message each has acknowledged."""
        return self.sds.participants()

    # Within

    def _recipients(self) -> Collection[str] | None:
        wanted = self.options.delivered_to
        if wanted == ANY:
            return None
        if wanted == ALL_KNOWN:
            return [each.sender_id for each in self.sds.participants()] or None
        return wanted

    def _out(self, transmission: Transmission, kind: Kind, key: str | None) -> None:
        repair = transmission.purpose is Purpose.REPAIR
        self._step.outbound.append(Outbound(transmission.message_id, key, kind, transmission.data, repair))

    def _again(self, transmission: Transmission) -> None:
        """What SDS wants sent by itself: messages again, and what others need to know.

        The request id is that of the segment, with the number of the try: where a restart has cut it short,
        the node may know it already.
        """
        purpose, kind, key = transmission.purpose, _KINDS[transmission.purpose], None
        place = self.tracker.place_of(transmission.message_id)
        if place is not None and purpose in (Purpose.CONTENT, Purpose.RETRANSMISSION):
            key = f"{place[0]}:{place[1] + 1}"
            if transmission.attempt > 1:
                key += f"/{transmission.attempt}"
            elif len(self.tracker.segments_of(place[0])) > 1:
                kind = Kind.SEGMENT
        self._out(transmission, kind, key)

    def _heard(self, event: object, now_ns: int) -> None:
        events = self._step.events
        match event:
            case Delivered():
                self._take_content(event.message_id, event.sender_id, event.content, now_ns)
            case EphemeralReceived(_, sender, content):
                segment = self._segment(content)
                payload = content if segment is None else segment.payload
                events.append(MessageReceived(payload, sender, ephemeral=True))
                events.append(ReliableMessageReceived(payload, sender))
            case PossiblyAcknowledged(message_id):
                events += self.tracker.possibly_acknowledged(message_id)
            case Acknowledged(message_id, by):
                events += self.tracker.acknowledged(message_id, by)
                self._step.settled.append(message_id)
            case NotAcknowledged(message_id):
                self._not_acknowledged(message_id)
            case MessagesLost(entries, reason):
                for entry in entries:
                    events.append(IrretrievableMessage((entry.message_id,), entry.sender_id, reason.value))
            case MessagesMissing():
                pass  # `missing` has them
            case _:
                pass  # acknowledgements in part, and refusals, which are counted

    def _not_acknowledged(self, sds_id: str) -> None:
        """If that was the end of the whole message, its other segments are not sent again either."""
        place = self.tracker.place_of(sds_id)
        segments = () if place is None else self.tracker.segments_of(place[0])
        self._step.events += self.tracker.not_acknowledged(sds_id)
        if place is not None and self.tracker.place_of(sds_id) is None:
            self._step.settled += segments
            for segment in segments:
                self.sds.retire(segment)

    def _take_content(self, sds_id: str, sender: str, content: bytes, now_ns: int) -> None:
        segment = self._segment(content)
        if segment is None:
            self._step.events.append(MessageReceived(content, sender))
            self._step.events.append(ReliableMessageReceived(content, sender))
            return
        step = self.reassembler.receive(segment, sender=sender, segment_id=sds_id, now=now_ns / _NS)
        self._reassembled(step)

    def _segment(self, content: bytes) -> Segment | None:
        """The segment in a message, or None for one of bare content."""
        try:
            return decode_segment(content)
        except DecodeError:
            return None

    def _reassembled(self, step: tuple[Sequence[SegmentEvent], Sequence[object]]) -> None:
        events, changes = step
        self._step.changes += segment_rows(changes, self._kept)  # pyright: ignore[reportArgumentType]
        for event in events:
            match event:
                case PayloadReceived(sender, _, payload):
                    self._step.events.append(MessageReceived(payload, sender))
                    self._step.events.append(ReliableMessageReceived(payload, sender))
                case PayloadIrretrievable(sender, _, _, _, missing, _, reason):
                    words = f"{missing} more segments were needed ({_given_up(reason)})"
                    self._step.events.append(IrretrievableMessage((), sender, words))
                case PayloadInvalid(sender):
                    self._step.events.append(
                        IrretrievableMessage((), sender, "its segments do not make up what they say")
                    )
                case _:
                    pass  # segments that are refused are counted


_KINDS: Final = {
    Purpose.CONTENT: Kind.MESSAGE,
    Purpose.RETRANSMISSION: Kind.RETRY,
    Purpose.REPAIR: Kind.RETRY,
    Purpose.SYNC: Kind.SYNC,
    Purpose.EPHEMERAL: Kind.EPHEMERAL,
}


def _given_up(reason: GivenUp) -> str:
    return {
        GivenUp.TIMEOUT: "they did not come in time",
        GivenUp.SENDER_LIMIT: "the sender has too much under way",
        GivenUp.TOTAL_LIMIT: "too much is under way",
    }[reason]


def require_payload(payload: object) -> bytes:
    """The payload, if it is one."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise InvalidInput(f"a payload is bytes, not {type(payload).__name__}")
    return bytes(payload)  # pyright: ignore[reportUnknownArgumentType]
