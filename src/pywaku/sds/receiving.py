"""What a received message does (SDS, Receive Message; SDS-R receive message)."""

from __future__ import annotations

from collections.abc import Iterable

from pywaku.errors import DecodeError
from pywaku.sds.incoming import Waiting
from pywaku.sds.log import LogEntry
from pywaku.sds.participants import Heard
from pywaku.sds.repair_times import is_in_response_group, response_delay_ms
from pywaku.sds.state import ChannelState
from pywaku.sds.sync import AFTER_RECEIVED_CONTENT, AFTER_RECEIVED_SYNC
from pywaku.sds.types import (
    Acknowledged,
    EphemeralReceived,
    LossReason,
    MessagesMissing,
    Outcome,
    Received,
    RefusalReason,
    Refused,
    SdsEvent,
)
from pywaku.wire.sds import HistoryEntry, SdsKind, SdsMessage, decode_sds


def receive(state: ChannelState, data: bytes, now_ms: int, hint: bytes | None) -> Received:
    """Take bytes from the channel."""
    counters = state.counters
    counters.received += 1
    try:
        message = decode_sds(data, state.memo)
    except DecodeError:
        counters.malformed += 1
        return Received(Outcome.MALFORMED, None)
    if message.channel_id != state.channel_id:
        counters.foreign += 1
        return Received(Outcome.FOREIGN, message)
    kind = message.kind
    if not message.sender_id or not (message.message_id or kind is SdsKind.SYNC):
        counters.malformed += 1
        return Received(Outcome.MALFORMED, message)
    if kind is SdsKind.EPHEMERAL:
        return Received(_receive_ephemeral(state, message), message)
    lamport = message.lamport_timestamp or 0
    if lamport > now_ms + state.options.max_lamport_ahead_ms:
        counters.too_far_ahead += 1
        return Received(_refuse(state, message, RefusalReason.TOO_FAR_AHEAD), message)
    if kind is SdsKind.SYNC:
        return Received(_receive_sync(state, message, lamport, now_ms), message)
    return Received(_receive_content(state, message, lamport, data, now_ms, hint), message)


def _refuse(state: ChannelState, message: SdsMessage, reason: RefusalReason) -> Outcome:
    state.events.append(Refused(message.message_id, message.sender_id, reason))
    return Outcome.REFUSED


def _receive_ephemeral(state: ChannelState, message: SdsMessage) -> Outcome:
    if message.sender_id == state.sender_id:
        state.counters.own_ignored += 1
        return Outcome.OWN
    state.counters.ephemeral_received += 1
    state.events.append(EphemeralReceived(message.message_id, message.sender_id, message.content or b""))
    return Outcome.EPHEMERAL


def _receive_sync(state: ChannelState, message: SdsMessage, lamport: int, now_ms: int) -> Outcome:
    if message.sender_id == state.sender_id:
        state.counters.own_ignored += 1
        return Outcome.OWN
    state.counters.syncs_received += 1
    history = message.history_ids
    _learn(state, message, history, lamport, now_ms)
    unmet, _ = _dependencies(state, message, history)
    _note_missing(state, message, unmet, now_ms)
    _relieve(state)
    state.restart_sync(AFTER_RECEIVED_SYNC, now_ms)
    return Outcome.SYNC


def _receive_content(
    state: ChannelState, message: SdsMessage, lamport: int, data: bytes, now_ms: int, hint: bytes | None
) -> Outcome:
    message_id = message.message_id
    counters = state.counters
    if state.responses.answered_by_another(message_id):
        counters.repairs_by_others += 1
    if message.sender_id == state.sender_id:
        counters.own_ignored += 1
        _adopt(state, message, lamport, data, hint)
        return Outcome.OWN
    if state.knows(message_id):
        counters.duplicates += 1
        state.sync.hasten(now_ms)
        return Outcome.DUPLICATE
    history = message.history_ids
    _learn(state, message, history, lamport, now_ms)
    was_missing = state.missing.remove(message_id) is not None
    if not state.log.reaches((lamport, message_id)):
        counters.too_old += 1
        if was_missing:
            state.lost.add(message_id)  # nobody waits for it from now on
        state.deliver_ready(state.incoming.met(message_id))
        return _refuse(state, message, RefusalReason.TOO_OLD)
    state.bloom.add(message_id)
    unmet, missed = _dependencies(state, message, history)
    waiting = Waiting(message_id, message.sender_id, lamport, hint, now_ms)
    waiting.missed = missed
    if not unmet:
        state.deliver(message, history, waiting, data)
        outcome = Outcome.DELIVERED
    else:
        counters.buffered += 1
        state.incoming.add(waiting, [entry.message_id for entry in unmet], data)
        _note_missing(state, message, unmet, now_ms)
        _relieve(state)
        outcome = Outcome.BUFFERED if message_id in state.incoming else Outcome.DELIVERED
    state.restart_sync(AFTER_RECEIVED_CONTENT, now_ms)
    return outcome


def _adopt(state: ChannelState, message: SdsMessage, lamport: int, data: bytes, hint: bytes | None) -> None:
    """An own message that the log does not know: our state was lost, and others depend on the message.

    It is not delivered, but it is part of the log again.
    """
    message_id = message.message_id
    if state.knows(message_id) or not state.log.reaches((lamport, message_id)):
        return
    state.counters.own_adopted += 1
    state.missing.remove(message_id)
    state.lost.discard(message_id)
    state.bloom.add(message_id)
    state.clock.observe(lamport)
    state.keep_for_repair(message_id, state.sender_id, data)
    state.enter_log(LogEntry(message_id, lamport, state.sender_id, hint), message.history_ids)
    state.deliver_ready(state.incoming.met(message_id))


def _learn(state: ChannelState, message: SdsMessage, history: list[str], lamport: int, now_ms: int) -> None:
    """What the message says of its sender, beside its content: what it has, and what it lacks."""
    heard = state.participants.hear(message.sender_id, lamport, now_ms)
    if message.repair_request:
        _take_requests(state, message.repair_request, now_ms)
    own = state.log.own
    if own:
        named = next((message_id for message_id in reversed(history) if message_id in own), None)
        if named is not None and (heard.acknowledged is None or (own[named], named) > heard.acknowledged):
            heard.acknowledged = (own[named], named)
    if len(state.outgoing):
        _review_acknowledgements(state, message, history, lamport, heard)


def _review_acknowledgements(
    state: ChannelState, message: SdsMessage, history: list[str], lamport: int, heard: Heard
) -> None:
    """SDS, Review ACK Status: the causal history is certain, the bloom filter is not.

    Filters of a sender grow, so one that is older than another one tells nothing new, and none counts twice.
    """
    outgoing, options = state.outgoing, state.options
    _finish(state, outgoing.review_history(history, message.sender_id))
    bloom = message.bloom_filter
    if bloom is None or lamport <= heard.bloom_lamport:
        return
    heard.bloom_lamport = lamport
    if len(bloom) != state.shape.size:
        state.counters.bloom_filters_malformed += 1
    elif found := outgoing.in_bloom(bloom):
        if state.shape.false_positive_rate(bloom) > options.max_false_positive_rate:
            state.counters.bloom_filters_too_full += 1
        else:
            _finish(state, outgoing.review_bloom(found, message.sender_id))


def _finish(state: ChannelState, events: Iterable[SdsEvent]) -> None:
    """Report acknowledgements; who is done leaves the outgoing buffer."""
    for event in events:
        state.events.append(event)
        if isinstance(event, Acknowledged):
            state.counters.acknowledged += 1
            data = state.bodies[event.message_id]
            if event.message_id in state.log:
                state.keep_for_repair(event.message_id, state.sender_id, data)
            state.outgoing.remove(event.message_id)


def _take_requests(state: ChannelState, requests: tuple[HistoryEntry, ...], now_ms: int) -> None:
    """SDS-R receive message: who else misses it, and is it on us to send it?"""
    repair = state.options.repair
    if repair is None:
        return
    counters, me = state.counters, state.sender_id
    counters.repair_requests_received += len(requests)
    counters.repair_requests_ignored += max(0, len(requests) - repair.max_requests_taken)
    for request in requests[: repair.max_requests_taken]:
        message_id = request.message_id
        state.missing.requested_by_another(message_id, now_ms)
        known = state.log.entries.get(message_id)
        # The sender that we know is the one to trust: the delay and the group follow from it.
        sender_id = request.sender_id if known is None else known.sender_id
        if (
            known is None
            or sender_id is None
            or state.repair_body(message_id) is None
            or not is_in_response_group(me, sender_id, message_id, repair)
            or not state.responses.add(
                message_id, now_ms + response_delay_ms(me, sender_id, message_id, repair)
            )
        ):
            counters.repair_requests_ignored += 1


def _dependencies(
    state: ChannelState, message: SdsMessage, history: list[str]
) -> tuple[list[HistoryEntry], list[HistoryEntry]]:
    """What the message depends on and is not in the log: what is to be waited for, and what is given up."""
    unknown_ids = state.log.unknown(history)
    if not unknown_ids:
        return [], []
    unmet: dict[str, HistoryEntry] = {}
    missed: dict[str, HistoryEntry] = {}
    unknown = set(unknown_ids)
    for entry in message.causal_history:
        message_id = entry.message_id
        if message_id in unknown and message_id and message_id != message.message_id:
            (missed if message_id in state.lost else unmet).setdefault(message_id, entry)
    return list(unmet.values()), list(missed.values())


def _note_missing(state: ChannelState, message: SdsMessage, unmet: list[HistoryEntry], now_ms: int) -> None:
    """What is neither in the log nor waiting itself has to come from somewhere."""
    missing = state.missing
    room = state.options.max_missing
    waits = message.message_id in state.incoming
    news: list[HistoryEntry] = []
    for entry in unmet:
        if entry.message_id in state.incoming:
            continue
        if not waits and 2 * len(missing) >= room and entry.message_id not in missing:
            state.counters.missing_dropped += (
                1  # nothing waits for it: half of the room is for what is needed
            )
        elif missing.note(entry, now_ms):
            news.append(entry)
    if news:
        state.counters.missing += len(news)
        state.events.append(MessagesMissing(tuple(news), message.message_id))


def _relieve(state: ChannelState) -> None:
    """Keep the incoming buffer and what is missing within their bounds."""
    incoming, missing = state.incoming, state.missing
    while len(incoming) and (incoming.is_too_full or missing.excess > 0):
        state.counters.released_early += 1
        state.release(incoming.victim(), LossReason.BUFFER_FULL)
    while missing.excess > 0:
        state.lose([missing.oldest()], LossReason.BUFFER_FULL)
