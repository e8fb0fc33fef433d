"""Payloads out of segments that come in any order (MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Receiving)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b

from pywaku.segments import leopard, types
from pywaku.segments.joining import Joined, Trouble, join
from pywaku.segments.sending import Holder, PayloadKey, Sending, Sendings
from pywaku.segments.types import GivenUp, KeptSending, ReassemblyLimits, Refusal, Step
from pywaku.wire.segments import Segment, objection_to


class Reassembler:
    """Collects segments and gives out payloads, each sending of each once.

    `sender` names who sent a segment: payloads of different senders never mix, and limits apply to each of
    them. It is only as good as what vouches for it. `segment_id` is the id of the message that carried the
    segment, such as its SDS message id: the same id again is a duplicate, another id for the same segment is
    another sending of the same payload. `now` is in seconds on any clock that does not jump.

    Each call returns what to store before anything else, in one transaction, and what to report. A
    reassembler that is made of what was `kept` goes on from there; its timeouts start anew, for time in which
    nothing could arrive says nothing, and until segments come, the oldest counts as having waited longest.
    """

    def __init__(
        self, limits: ReassemblyLimits | None = None, kept: Iterable[KeptSending] = (), now: float = 0.0
    ) -> None:
        self.limits = limits or ReassemblyLimits()
        self.counters = types.ReassemblyCounters()
        self._sendings: dict[PayloadKey, Sendings] = {}
        self._open: OrderedDict[int, Sending] = OrderedDict()  # who has waited longest comes first
        self._holders: dict[str, Holder] = {}
        self._held_bytes = 0
        self._remembered: OrderedDict[int, Sending] = OrderedDict()
        self._remembered_segments = 0
        self._next_number = 0
        for sending in sorted(kept, key=lambda sending: sending.opened.number):
            self._restore(sending, now)
        self._unchecked = bool(self._next_number)  # limits may be lower than they were

    @property
    def sizes(self) -> types.ReassemblySizes:
        """How full it is."""
        return types.ReassemblySizes(
            len(self._open), self._held_bytes, self._remembered_segments, len(self._holders)
        )

    def receive(self, segment: Segment, *, sender: str, segment_id: str, now: float) -> Step:
        """A segment has come."""
        step = Step([], [])
        self.counters.segments += 1
        refusal = self._refusal(segment, sender)
        if refusal is not None:
            return self._refuse(step, segment, sender, segment_id, refusal)
        key = PayloadKey(
            sender, segment.entire_message_hash, segment.data_segment_count, segment.parity_segment_count
        )
        sendings = self._sendings.get(key)
        segment_key = blake2b(segment_id.encode(errors="surrogatepass"), digest_size=16).digest()
        if sendings is not None and segment_key in sendings.known:
            self.counters.duplicates += 1
            return step
        position = segment.index + segment.data_segment_count * segment.is_parity
        sending = None
        if sendings is not None:
            if sendings.contradicts(position, segment.payload):
                return self._refuse(step, segment, sender, segment_id, Refusal.CONFLICT)
            sending = sendings.place_for(position)
        if sending is None:
            sending = Sending(self._next_number, key, now)
        elif not sending.settled and not sending.fits(position, segment.payload):
            return self._refuse(step, segment, sender, segment_id, Refusal.UNFITTING)
        self._take(step, sending, position, segment_key, segment.payload, now)
        self._keep_limits(step, sender)
        return step

    def tick(self, now: float) -> Step:
        """Time has passed: give up what has waited too long. See `next_tick`."""
        step = Step([], [])
        if self._unchecked:
            self._unchecked = False
            for sender in list(self._holders):
                self._keep_limits(step, sender)
            self._forget_oldest(step)
        while self._open:
            oldest = next(iter(self._open.values()))
            if now < oldest.advanced_at + self.limits.timeout_s:
                break
            self.counters.timed_out += 1
            self._give_up(step, oldest, GivenUp.TIMEOUT)
        return step

    def begin_anew(self, now: float) -> None:
        """Nothing could arrive for a while, which says nothing of the senders: timeouts start anew."""
        for sending in self._open.values():
            sending.advanced_at = now

    def next_tick(self) -> float:
        """When `tick` has something to do; infinity if nothing is to come."""
        if self._unchecked:
            return -math.inf
        if not self._open:
            return math.inf
        return next(iter(self._open.values())).advanced_at + self.limits.timeout_s

    # Segments

    def _refusal(self, segment: Segment, sender: str) -> Refusal | None:
        if objection_to(segment) is not None or len(sender) > types.MAX_SENDER_LENGTH:
            return Refusal.INVALID
        if len(segment.payload) > self.limits.max_segment_bytes:
            return Refusal.OVERSIZE
        if segment.is_parity and not segment.payload:
            return Refusal.UNFITTING
        if segment.is_parity and not leopard.fits(segment.data_segment_count, segment.parity_segment_count):
            return Refusal.PARITY_UNUSABLE
        return None

    def _refuse(self, step: Step, segment: Segment, sender: str, segment_id: str, reason: Refusal) -> Step:
        self.counters.refused += 1
        step.events.append(
            types.SegmentRefused(sender, segment.entire_message_hash, segment_id, reason),
        )
        return step

    def _take(
        self, step: Step, sending: Sending, position: int, segment_key: bytes, payload: bytes, now: float
    ) -> None:
        new = sending.number == self._next_number
        late = sending.settled
        before = sending.held_bytes
        sending.add(position, segment_key, payload)
        if late:
            self.counters.late += 1
            self._remembered_segments += 1
        else:
            sending.advanced_at = now
            self._held(sending, sending.held_bytes - before)
        if new:
            self._next_number += 1
            self._sendings.setdefault(sending.key, Sendings()).open_places.append(sending)
            self._sendings[sending.key].count += 1
        sendings = self._sendings[sending.key]
        sendings.known.add(segment_key)
        done = not late and sending.enough and self._complete(step, sending)
        if new:
            step.changes.append(types.SendingOpened(sending.number, *sending.key, settled=done))
        kept = b"" if sending.settled else payload
        step.changes.append(types.SegmentKept(sending.number, position, segment_key, kept))
        if done and not new:
            step.changes.append(types.SendingSettled(sending.number))
        sendings.update(sending)
        self._forget_oldest(step)

    def _complete(self, step: Step, sending: Sending) -> bool:
        """Try to make a payload of the segments; True if the sending is over, one way or the other."""
        joined = self._join(sending)
        key = sending.key
        if joined.trouble is Trouble.ENDING:
            sending.wants_last = True
            return False
        self._settle(sending)
        if joined.payload is None:
            self.counters.invalid += 1
            step.events.append(
                types.PayloadInvalid(key.sender, key.entire_message_hash, key.data_segment_count)
            )
            return True
        self.counters.payloads += 1
        self.counters.recovered_payloads += joined.recovered > 0
        self.counters.recovered_segments += joined.recovered
        step.events.append(
            types.PayloadReceived(
                key.sender,
                key.entire_message_hash,
                joined.payload,
                key.data_segment_count,
                joined.recovered,
            )
        )
        return True

    def _join(self, sending: Sending) -> Joined:
        key = sending.key
        return join(
            sending.segments,
            key.data_segment_count,
            key.parity_segment_count,
            key.entire_message_hash,
            max_trailing_zeros=self.limits.max_trailing_zeros,
        )

    # What is held

    def _held(self, sending: Sending, more_bytes: int) -> None:
        """The sending is open and has advanced."""
        holder = self._holders.get(sending.key.sender)
        if holder is None:
            holder = self._holders[sending.key.sender] = Holder()
        for table in (holder.open, self._open):
            table[sending.number] = sending
            table.move_to_end(sending.number)
        holder.held_bytes += more_bytes
        self._held_bytes += more_bytes

    def _settle(self, sending: Sending) -> None:
        holder = self._holders[sending.key.sender]
        del holder.open[sending.number], self._open[sending.number]
        holder.held_bytes -= sending.held_bytes
        self._held_bytes -= sending.held_bytes
        if not holder.open:
            del self._holders[sending.key.sender]
        sending.settle()
        self._remember(sending)

    def _remember(self, sending: Sending) -> None:
        self._remembered[sending.number] = sending
        self._remembered_segments += len(sending.segment_keys)

    def _forget_oldest(self, step: Step) -> None:
        while self._remembered_segments > self.limits.max_remembered_segments:
            number, sending = self._remembered.popitem(last=False)
            self._remembered_segments -= len(sending.segment_keys)
            sendings = self._sendings[sending.key]
            sendings.known.difference_update(sending.segment_keys)
            sendings.count -= 1
            if sending in sendings.open_places:
                sendings.open_places.remove(sending)
            if not sendings.count:
                del self._sendings[sending.key]
            self.counters.forgotten += 1
            step.changes.append(types.SendingForgotten(number))

    def _keep_limits(self, step: Step, sender: str) -> None:
        limits = self.limits
        while (holder := self._holders.get(sender)) is not None and (
            len(holder.open) > limits.max_reassemblies_per_sender
            or holder.held_bytes > limits.max_bytes_per_sender
        ):
            self._evict(step, holder, GivenUp.SENDER_LIMIT)
        while len(self._open) > limits.max_reassemblies:
            self._evict(step, max(self._holders.values(), key=_most_reassemblies), GivenUp.TOTAL_LIMIT)
        while self._held_bytes > limits.max_bytes:
            self._evict(
                step, max(self._holders.values(), key=lambda holder: holder.held_bytes), GivenUp.TOTAL_LIMIT
            )

    def _evict(self, step: Step, holder: Holder, reason: GivenUp) -> None:
        self.counters.evicted += 1
        self._give_up(step, next(iter(holder.open.values())), reason)

    def _give_up(self, step: Step, sending: Sending, reason: GivenUp) -> None:
        key, received = sending.key, len(sending.segments)
        missing = tuple(index for index in range(key.data_segment_count) if index not in sending.segments)
        step.events.append(
            types.PayloadIrretrievable(
                key.sender,
                key.entire_message_hash,
                key.data_segment_count,
                received,
                max(1, key.data_segment_count - received),
                missing,
                reason,
            )
        )
        self._settle(sending)
        step.changes.append(types.SendingSettled(sending.number))
        self._sendings[key].update(sending)
        self._forget_oldest(step)

    def _restore(self, kept: KeptSending, now: float) -> None:
        opened = kept.opened
        key = PayloadKey(
            opened.sender,
            opened.entire_message_hash,
            opened.data_segment_count,
            opened.parity_segment_count,
        )
        sending = Sending(opened.number, key, now)
        sending.settled = opened.settled
        sendings = self._sendings.setdefault(key, Sendings())
        sendings.count += 1
        sendings.open_places.append(sending)
        for segment in kept.segments:
            sending.add(segment.position, segment.segment_key, segment.payload)
            sendings.known.add(segment.segment_key)
        if sending.settled:
            self._remember(sending)
        else:
            self._held(sending, sending.held_bytes)
        sendings.update(sending)
        self._next_number = max(self._next_number, opened.number + 1)


def _most_reassemblies(holder: Holder) -> tuple[int, float]:
    """Those who hold equally many go by who has waited longest."""
    return len(holder.open), -next(iter(holder.open.values())).advanced_at
