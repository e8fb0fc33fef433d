"""What a participant sends: messages of its own, sync messages, and what is due again or for others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pywaku.errors import InvalidInput, LimitExceeded
from pywaku.sds.incoming import STUCK
from pywaku.sds.log import LogEntry
from pywaku.sds.message_ids import content_id, sync_id, unique_id
from pywaku.sds.missing import LOST
from pywaku.sds.options import MAX_CAUSAL_HISTORY, MessageIds
from pywaku.sds.outgoing import RESEND, Unacknowledged
from pywaku.sds.responses import RESPOND
from pywaku.sds.state import ChannelState
from pywaku.sds.sync import AFTER_FIRING, AFTER_OWN_CONTENT, SYNC
from pywaku.sds.types import LossReason, NotAcknowledged, Purpose, Transmission
from pywaku.wire.sds import SdsMessage, decode_sds, encode_sds

_NS_PER_MS: Final = 1_000_000
_ABREAST: Final = 150
"""Parts of one thing that are sent without one naming another."""


def send(
    state: ChannelState,
    content: bytes,
    now_ns: int,
    *,
    message_id: str | None,
    recipients: Collection[str] | None,
) -> Transmission:
    """SDS, Send Message."""
    _check_recipients(state, recipients)
    _require_room(state, 1, len(content))
    if message_id is not None and state.knows(message_id):
        raise InvalidInput(f"message id {message_id} is taken")
    return _send(state, content, now_ns, message_id, recipients, _history(state))


def send_together(
    state: ChannelState,
    contents: Sequence[bytes],
    now_ns: int,
    *,
    size: int,
    recipients: Collection[str] | None,
) -> list[Transmission]:
    """Parts of one thing: each has the causal history of the first, so that none waits for another.

    From time to time one names all the parts so far, or there would be more loose ends than a message names.
    """
    _check_recipients(state, recipients)
    _require_room(state, len(contents), size)
    before = _history(state)
    return [
        _send(
            state,
            content,
            now_ns + number,
            None,
            recipients,
            before if number == 0 or number % _ABREAST else _history(state),
        )
        for number, content in enumerate(contents)
    ]


def _check_recipients(state: ChannelState, recipients: Collection[str] | None) -> None:
    if recipients is not None and (not recipients or state.sender_id in recipients):
        raise InvalidInput("recipients are other participants, at least one, or None for anybody")


def _require_room(state: ChannelState, count: int, size: int) -> None:
    outgoing = state.outgoing
    if not outgoing.has_room(count, size):
        raise LimitExceeded(
            f"{len(outgoing)} messages of {outgoing.size} bytes are not acknowledged yet; "
            f"{state.options.max_outgoing} of {state.options.max_outgoing_bytes} are allowed"
        )


def _send(
    state: ChannelState,
    content: bytes,
    now_ns: int,
    message_id: str | None,
    recipients: Collection[str] | None,
    history: list[LogEntry],
) -> Transmission:
    if not content:
        raise InvalidInput("a message needs content: one without is a sync message")
    if message_id is None:
        message_id = _new_id(state, content, now_ns)
    now_ms = now_ns // _NS_PER_MS
    lamport = state.clock.advance(now_ms)
    data = _compose(state, message_id, lamport, now_ms, content, history)
    named = [entry.message_id for entry in history]
    state.outgoing.add(message_id, lamport, data, None if recipients is None else frozenset(recipients))
    state.bloom.add(message_id)
    state.lost.discard(message_id)
    state.enter_log(LogEntry(message_id, lamport, state.sender_id, None), named)
    state.counters.sent += 1
    state.restart_sync(AFTER_OWN_CONTENT, now_ms)
    return Transmission(message_id, data, Purpose.CONTENT)


def _history(state: ChannelState, heads: Collection[str] | None = None) -> list[LogEntry]:
    return state.log.causal_history(
        state.options.causal_history_size, state.heads.all() if heads is None else heads
    )


def _new_id(state: ChannelState, content: bytes, now_ns: int) -> str:
    if state.options.message_ids is MessageIds.CONTENT:
        message_id = content_id(content)
        if not state.knows(message_id):
            return message_id
    message_id = unique_id(state.sender_id, now_ns, content)
    while state.knows(message_id):  # the same content twice within the clock's resolution
        now_ns += 1
        message_id = unique_id(state.sender_id, now_ns, content)
    return message_id


def _compose(
    state: ChannelState,
    message_id: str,
    lamport: int,
    now_ms: int,
    content: bytes | None,
    history: list[LogEntry],
) -> bytes:
    """A message with what we have and what we lack, as both are before it."""
    requests = state.missing.take_eligible(now_ms)
    state.counters.repairs_requested += len(requests)
    state.sync.spoke(now_ms)
    entries = state.log.encode(history, with_senders=state.options.repair is not None, hints=state.hints)
    message = SdsMessage(
        state.sender_id,
        message_id,
        state.channel_id,
        lamport,
        bloom_filter=state.bloom.to_bytes(),
        repair_request=requests,
        content=content,
    )
    return encode_sds(message, entries)


def send_ephemeral(state: ChannelState, content: bytes, now_ns: int) -> Transmission:
    """SDS, Ephemeral Messages."""
    if not content:
        raise InvalidInput("an ephemeral message needs content")
    message_id = _new_id(state, content, now_ns)
    data = encode_sds(SdsMessage(state.sender_id, message_id, state.channel_id, content=content))
    state.counters.ephemeral_sent += 1
    return Transmission(message_id, data, Purpose.EPHEMERAL)


def sync(state: ChannelState, now_ms: int) -> bool:
    """SDS, Periodic Sync Message; none is sent that would say nothing."""
    if not len(state.log) and not state.missing.has_eligible(now_ms):
        return False
    message_id = sync_id(state.rng)
    heads = state.heads.all()
    if (
        len(heads) >= MAX_CAUSAL_HISTORY
    ):  # a sync message ends no loose end: others have their turn with the next
        heads = state.rng.sample(list(heads), MAX_CAUSAL_HISTORY - 1)
    history = _history(state, heads)
    data = _compose(state, message_id, state.clock.advance(now_ms), now_ms, None, history)
    state.counters.syncs_sent += 1
    state.transmissions.append(Transmission(message_id, data, Purpose.SYNC))
    return True


def sent(state: ChannelState, message_id: str, now_ms: int, hint: bytes | None) -> None:
    """A transmission is over."""
    message = state.outgoing.get(message_id)
    if message is not None:
        state.outgoing.sent(message, now_ms)
    if hint is not None:
        state.log.set_hint(message_id, hint)


def withdraw(state: ChannelState, message_id: str) -> bool:
    """Nobody will ever get a message of ours."""
    if message_id not in state.outgoing:
        return False
    history = decode_sds(state.bodies[message_id]).history_ids
    state.outgoing.remove(message_id)
    state.log.remove(message_id)
    state.heads.discard(message_id)
    state.heads.restore(named for named in history if named in state.log)
    state.bloom.remove(message_id)
    return True


def retire(state: ChannelState, message_id: str) -> bool:
    """Not to be acknowledged any more. Others may have it, so it stays in the log, and there for repair."""
    if message_id not in state.outgoing:
        return False
    if message_id in state.log:
        state.keep_for_repair(message_id, state.sender_id, state.bodies[message_id])
    state.outgoing.remove(message_id)
    return True


def tick(state: ChannelState, now_ms: int) -> None:
    """The periodic sweeps: first what comes in, then what goes out, and a sync message that knows of both."""
    due: dict[int, list[str]] = {}
    while (timer := state.timers.pop_due(now_ms)) is not None:
        due.setdefault(timer[0], []).append(timer[1])
    if LOST in due:
        state.lose(due[LOST], LossReason.TIMEOUT)
    for message_id in due.get(STUCK, ()):
        waiting = state.incoming.get(message_id)
        if waiting is not None:
            state.release(waiting, LossReason.TIMEOUT)
    _resend(state, due.get(RESEND, ()))
    for message_id in due.get(RESPOND, ()):
        _respond(state, message_id, now_ms)
    if SYNC in due:
        sync(state, now_ms)
        state.restart_sync(AFTER_FIRING, now_ms)


def _resend(state: ChannelState, message_ids: Collection[str]) -> None:
    """SDS, Periodic Outgoing Buffer Sweep: the unacknowledged before the possibly acknowledged."""
    found = [state.outgoing.get(message_id) for message_id in message_ids]
    messages = [message for message in found if message is not None]
    messages.sort(key=lambda one: (one.possibly_acknowledged, one.lamport, one.message_id))
    for message in messages:
        # An attempt that a restart has cut short is made once more: it may never have left.
        interrupted = message.sent_ms is None
        if not interrupted and message.transmissions > state.options.max_retransmissions:
            _give_up(state, message)
            continue
        data = state.outgoing.send_again(message, counts=not interrupted)
        first = message.transmissions == 1
        state.counters.retransmitted += not first
        purpose = Purpose.CONTENT if first else Purpose.RETRANSMISSION
        state.transmissions.append(Transmission(message.message_id, data, purpose, message.transmissions))


def _give_up(state: ChannelState, message: Unacknowledged) -> None:
    message_id = message.message_id
    state.counters.not_acknowledged += 1
    state.events.append(NotAcknowledged(message_id, message.transmissions, tuple(message.acknowledged_by)))
    retire(state, message_id)


def _respond(state: ChannelState, message_id: str, now_ms: int) -> None:
    """SDS-R incoming repair request buffer sweep."""
    if not state.responses.is_due(message_id, now_ms):
        return
    data = state.repair_body(message_id)
    if data is not None:
        state.counters.repairs_sent += 1
        state.transmissions.append(Transmission(message_id, data, Purpose.REPAIR))
