"""What a participant sends: messages of its own, sync messages, and what is due again or for others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pywaku.errors import InvalidInput, LimitExceeded
from pywaku.sds.incoming import STUCK
from pywaku.sds.log import LogEntry
from pywaku.sds.message_ids import content_id, sync_id, unique_id
from pywaku.sds.missing import LOST
from pywaku.sds.options import MessageIds
from pywaku.sds.outgoing import RESEND, Unacknowledged
from pywaku.sds.responses import RESPOND
from pywaku.sds.state import ChannelState
from pywaku.sds.sync import AFTER_FIRING, AFTER_OWN_CONTENT, SYNC
from pywaku.sds.types import LossReason, NotAcknowledged, Purpose, Transmission
from pywaku.wire.sds import SdsMessage, encode_sds

_NS_PER_MS: Final = 1_000_000


def send(
    state: ChannelState,
    content: bytes,
    now_ns: int,
    *,
    message_id: str | None,
    recipients: Collection[str] | None,
) -> Transmission:
    """SDS, Send Message."""
    if not content:
        raise InvalidInput("a message needs content: one without is a sync message")
    if recipients is not None and (not recipients or state.sender_id in recipients):
        raise InvalidInput("recipients are other participants, at least one, or None for anybody")
    outgoing = state.outgoing
    if not outgoing.has_room(len(content)):
        raise LimitExceeded(
            f"{len(outgoing)} messages of {outgoing.size} bytes are not acknowledged yet; "
            f"{state.options.max_outgoing} of {state.options.max_outgoing_bytes} are allowed"
        )
    if message_id is None:
        message_id = _new_id(state, content, now_ns)
    elif state.knows(message_id):
        raise InvalidInput(f"message id {message_id} is taken")
    now_ms = now_ns // _NS_PER_MS
    lamport = state.clock.advance(now_ms)
    data = _compose(state, message_id, lamport, now_ms, content)
    named = list(state.heads.all()) if state.options.causal_history_size else []
    outgoing.add(message_id, lamport, data, None if recipients is None else frozenset(recipients))
    state.bloom.add(message_id)
    state.lost.discard(message_id)
    state.enter_log(LogEntry(message_id, lamport, state.sender_id, None), named)
    state.counters.sent += 1
    state.restart_sync(AFTER_OWN_CONTENT, now_ms)
    return Transmission(message_id, data, Purpose.CONTENT)


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


def _compose(state: ChannelState, message_id: str, lamport: int, now_ms: int, content: bytes | None) -> bytes:
    """A message with what we have and what we lack, as both are before it."""
    options = state.options
    requests = state.missing.take_eligible(now_ms)
    state.counters.repairs_requested += len(requests)
    history = state.log.causal_history(
        options.causal_history_size,
        state.heads.all(),
        with_senders=options.repair is not None,
        hints=state.hints,
    )
    message = SdsMessage(
        state.sender_id,
        message_id,
        state.channel_id,
        lamport,
        bloom_filter=state.bloom.to_bytes(),
        repair_request=requests,
        content=content,
    )
    return encode_sds(message, history)


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
    data = _compose(state, message_id, state.clock.advance(now_ms), now_ms, None)
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
    state.outgoing.remove(message_id)
    state.log.remove(message_id)
    state.heads.discard(message_id)
    state.bloom.remove(message_id)
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
        if message.transmissions > state.options.max_retransmissions:
            _give_up(state, message)
            continue
        data = state.outgoing.send_again(message)
        state.counters.retransmitted += 1
        state.transmissions.append(
            Transmission(message.message_id, data, Purpose.RETRANSMISSION, message.transmissions)
        )


def _give_up(state: ChannelState, message: Unacknowledged) -> None:
    message_id = message.message_id
    state.counters.not_acknowledged += 1
    state.events.append(NotAcknowledged(message_id, message.transmissions, tuple(message.acknowledged_by)))
    if message_id in state.log:
        state.keep_for_repair(message_id, state.sender_id, state.bodies[message_id])
    state.outgoing.remove(message_id)


def _respond(state: ChannelState, message_id: str, now_ms: int) -> None:
    """SDS-R incoming repair request buffer sweep."""
    if not state.responses.is_due(message_id, now_ms):
        return
    data = state.repair_body(message_id)
    if data is not None:
        state.counters.repairs_sent += 1
        state.transmissions.append(Transmission(message_id, data, Purpose.REPAIR))
