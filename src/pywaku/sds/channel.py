"""One participant's side of an SDS channel, as a state machine without clock, network or tasks."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.sds import receiving, sending
from pywaku.sds.changes import Change, Rows, Table
from pywaku.sds.log import HintProvider, check_hint
from pywaku.sds.options import SdsOptions
from pywaku.sds.state import ChannelState
from pywaku.sds.sync import AFTER_START
from pywaku.sds.types import (
    Counters,
    LossReason,
    Participant,
    Received,
    SdsEvent,
    Sizes,
    Transmission,
)
from pywaku.wire.sds import MAX_ID_LENGTH, HistoryEntry

_NS_PER_MS: Final = 1_000_000


class SdsChannel:
    """A participant of a channel.

    Time is an argument: nanoseconds since the epoch, which should not go back. After each call that takes it,
    `take_transmissions` has what is to be sent, `take_events` what has happened and `take_changes` what is to
    be saved. `tick` is due at `next_tick`.
    """

    def __init__(
        self,
        channel_id: str,
        sender_id: str,
        options: SdsOptions = SdsOptions(),  # noqa: B008 (it is frozen)
        *,
        rng: random.Random,
        now_ns: int,
        hints: HintProvider | None = None,
        track_changes: bool = False,
    ) -> None:
        """`hints` knows retrieval hints by message id. `track_changes` is for those who take them."""
        _check_id("sender_id", sender_id)
        _check_id("channel_id", channel_id)
        now_ms = now_ns // _NS_PER_MS
        self._state = ChannelState(
            channel_id, sender_id, options, rng, now_ms, hints=hints, track_changes=track_changes
        )
        self._state.restart_sync(AFTER_START, now_ms)

    @classmethod
    def restore(
        cls,
        channel_id: str,
        sender_id: str,
        options: SdsOptions = SdsOptions(),  # noqa: B008 (it is frozen)
        *,
        rows: Iterable[tuple[Table, str, bytes]],
        rng: random.Random,
        now_ns: int,
        hints: HintProvider | None = None,
        track_changes: bool = True,
        resume: bool = True,
    ) -> SdsChannel:
        """The channel of which these rows were saved; a new one if there are none.

        With `resume`, messages whose transmission was not reported by `sent` are due to be sent again, and
        what is missing has all of its time once more.
        """
        channel = cls(
            channel_id,
            sender_id,
            options,
            rng=random.Random(0),
            now_ns=now_ns,
            hints=hints,
            track_changes=track_changes,
        )
        state = channel._state
        state.rng = rng
        state.sync.use(rng)
        tables: dict[Table, dict[str, bytes]] = {table: {} for table in Table}
        for table, key, value in rows:
            tables[table][key] = value
        for table, keeper in state.keepers.items():
            saved: Rows = tables[table]
            keeper.load(saved)
        state.bodies.drop_unheld()
        now_ms = now_ns // _NS_PER_MS
        state.timers.limit(now_ms + options.longest_wait_ms)
        if resume:
            state.outgoing.send_all_again(now_ms)
            channel.begin_anew(now_ns)
        if not tables[Table.SYNC]:
            state.restart_sync(AFTER_START, now_ms)
        return channel

    @property
    def channel_id(self) -> str:
        """The channel."""
        return self._state.channel_id

    @property
    def sender_id(self) -> str:
        """Who we are in it."""
        return self._state.sender_id

    @property
    def options(self) -> SdsOptions:
        """What the channel was told."""
        return self._state.options

    # sending

    def send(
        self,
        content: bytes,
        now_ns: int,
        *,
        message_id: str | None = None,
        recipients: Collection[str] | None = None,
    ) -> Transmission:
        """A message for all participants (SDS, Send Message), to be sent by the caller, who then says `sent`.

        It is acknowledged when any other participant has it, or each of `recipients`. Raises `LimitExceeded`
        while too many messages are unacknowledged.
        """
        if message_id is not None:
            _check_id("message_id", message_id)
        return sending.send(self._state, content, now_ns, message_id=message_id, recipients=recipients)

    def send_together(
        self,
        contents: Sequence[bytes],
        now_ns: int,
        *,
        size: int,
        recipients: Collection[str] | None = None,
    ) -> list[Transmission]:
        """The parts of one thing, of about `size` bytes, as messages of which none depends on another.

        So none waits with those who lack another, and who has heard them all acknowledges all with its next
        message. Either all are taken, or none is. For the rest see `send`.
        """
        return sending.send_together(self._state, contents, now_ns, size=size, recipients=recipients)

    def send_ephemeral(self, content: bytes, now_ns: int) -> Transmission:
        """A message outside of the log, to be sent once (SDS, Ephemeral Messages)."""
        return sending.send_ephemeral(self._state, content, now_ns)

    def sent(self, message_id: str, now_ns: int, *, retrieval_hint: bytes | None = None) -> None:
        """A transmission of a message was made (or failed for now): the time to acknowledge it begins.

        Until this is said, the message is not sent again: it may wait for its turn as long as it has to.
        """
        sending.sent(self._state, message_id, now_ns // _NS_PER_MS, retrieval_hint)

    def set_retrieval_hint(self, message_id: str, hint: bytes) -> None:
        """How others can retrieve a message; goes into the causal histories to come."""
        self._state.log.set_hint(message_id, hint)

    def withdraw(self, message_id: str) -> bool:
        """Forget a message of ours that can never be sent; False if it is not unacknowledged.

        Nobody else has it, so it may not be in the log: others would miss it.
        """
        return sending.withdraw(self._state, message_id)

    def retire(self, message_id: str) -> bool:
        """Send a message of ours no more, acknowledged or not; False if it is not unacknowledged.

        It stays in the log, and can be repaired. There is no final event for it.
        """
        return sending.retire(self._state, message_id)

    # receiving

    def receive(self, data: bytes, now_ns: int, *, retrieval_hint: bytes | None = None) -> Received:
        """Bytes have come, whatever they are (SDS, Receive Message): nothing in them raises."""
        check_hint(retrieval_hint)
        return receiving.receive(self._state, data, now_ns // _NS_PER_MS, retrieval_hint)

    def missing(self) -> tuple[HistoryEntry, ...]:
        """The messages that others have and we do not, missing for longest first."""
        return self._state.missing.entries()

    def abandon(self, message_ids: Iterable[str]) -> None:
        """Give up missing messages now: nobody has them, or they are not wanted. What waits is delivered."""
        self._state.lose(list(message_ids), LossReason.ABANDONED)

    def begin_anew(self, now_ns: int) -> None:
        """Nothing could arrive for a while: what is missing has all of its time once more."""
        now_ms = now_ns // _NS_PER_MS
        self._state.missing.begin_anew(now_ms)
        self._state.incoming.begin_anew(now_ms)

    # time and output

    def tick(self, now_ns: int) -> None:
        """Do what is due (the periodic sweeps and sync messages of the specification)."""
        sending.tick(self._state, now_ns // _NS_PER_MS)

    def next_tick(self) -> int | None:
        """When `tick` is due, in nanoseconds since the epoch; None: not before something else happens."""
        due_ms = self._state.timers.next_due()
        return None if due_ms is None else due_ms * _NS_PER_MS

    def sync(self, now_ns: int) -> bool:
        """Send a sync message now; False where there is nothing to say."""
        return sending.sync(self._state, now_ns // _NS_PER_MS)

    def take_transmissions(self) -> list[Transmission]:
        """All that is to be sent and was not taken before."""
        taken = self._state.transmissions
        self._state.transmissions = []
        return taken

    def take_events(self) -> list[SdsEvent]:
        """All that has happened and was not taken before."""
        taken = self._state.events
        self._state.events = []
        return taken

    def take_changes(self) -> list[Change]:
        """The rows to save, to be written in one transaction, before what was taken with them is acted on."""
        return self._state.changes.take(self._state.keepers)

    # inspection

    def participants(self) -> tuple[Participant, ...]:
        """Who else was heard, who was heard last first."""
        return self._state.participants.all()

    def unacknowledged(self) -> tuple[str, ...]:
        """The ids of the messages in the outgoing buffer, in the order in which they were sent."""
        return tuple(message.message_id for message in self._state.outgoing.all())

    def log(self, count: int) -> tuple[str, ...]:
        """The ids of the newest messages of the log, in its order."""
        return tuple(entry.message_id for entry in self._state.log.last(count))

    @property
    def lamport_timestamp(self) -> int:
        """The local Lamport timestamp."""
        return self._state.clock.lamport

    @property
    def counters(self) -> Counters:
        """What has happened so far; a copy."""
        state = self._state
        return replace(
            state.counters,
            log_evicted=state.log.evicted,
            heads_evicted=state.heads.evicted,
            lost_evicted=state.lost.evicted,
            participants_evicted=state.participants.evicted,
            cache_evicted=state.cache.evicted,
        )

    def sizes(self) -> Sizes:
        """How full the tables are."""
        state = self._state
        return Sizes(
            log=len(state.log),
            outgoing=len(state.outgoing),
            outgoing_bytes=state.outgoing.size,
            incoming=len(state.incoming),
            incoming_bytes=state.incoming.size,
            missing=len(state.missing),
            lost=len(state.lost),
            responses=len(state.responses),
            heads=len(state.heads),
            cached=len(state.cache),
            cached_bytes=state.cache.size,
            participants=len(state.participants),
            bloom_filter=len(state.bloom),
        )


def _check_id(name: str, value: str) -> None:
    if not 0 < len(value) <= MAX_ID_LENGTH:
        raise InvalidInput(f"a {name} has 1 to {MAX_ID_LENGTH} characters, not {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} {value!r} cannot be encoded as UTF-8") from None
