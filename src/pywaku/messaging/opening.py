"""Opens what the Messaging API consists of, and closes it in order."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import trio

from pywaku.ids import PeerId
from pywaku.journal import Journal, in_thread, open_journal
from pywaku.messaging.attempts import SendPolicy
from pywaku.messaging.background import Background
from pywaku.messaging.config import NodeConfig
from pywaku.messaging.environment import Environment
from pywaku.messaging.events import Events, open_events
from pywaku.messaging.health import Health
from pywaku.messaging.inbox import Inbox
from pywaku.messaging.light import Light
from pywaku.messaging.messaging import Messaging
from pywaku.messaging.missed import Missed
from pywaku.messaging.record import MessageRecord
from pywaku.messaging.records import (
    Change,
    Changed,
    MemoryRecordStore,
    Recorder,
    RecordStore,
    open_recorder,
)
from pywaku.messaging.relaying import Relaying
from pywaku.messaging.reports import Reports
from pywaku.messaging.sender import Sender
from pywaku.messaging.stores import Stores
from pywaku.messaging.wanting import Wanting
from pywaku.messaging.watching import HealthWatch
from pywaku.network.port import Network
from pywaku.tasks import open_service_nursery

logger = logging.getLogger(__name__)

_LINGER_S: Final = 2.0
"""How long a node that is being closed goes on with messages that were not tried to send yet."""
_REMEMBERED: Final = 50_000
"""Messages of an earlier life that are known from the start to have come already."""


@asynccontextmanager
async def open_messaging(
    config: NodeConfig,
    network: Network,
    transport: Relaying | Light,
    stores: Stores,
    environment: Environment,
) -> AsyncGenerator[tuple[Messaging, HealthWatch]]:
    """The Messaging API on a transport. Leaving it gives what was not tried yet a moment, and flushes."""
    clock = environment.clock
    async with AsyncExitStack() as stack:
        journal = await _journal(config, network.peer_id, environment, stack)
        reports = Reports(journal)
        events = await stack.enter_async_context(open_events())
        store = await _records(config, environment, stack)
        recorder = await stack.enter_async_context(open_recorder(store, _telling(events, clock), clock=clock))
        nursery = await stack.enter_async_context(open_service_nursery())

        # The parts know each other by what they call; those that are made later are looked up then.
        def left(record: MessageRecord) -> None:
            inbox.loop_back(record)

        def need(pubsub_topic: str, needed: bool) -> None:
            watch.needed(pubsub_topic, needed)

        sender = Sender(
            transport,
            recorder,
            reports,
            clock,
            SendPolicy(max_pending=config.max_pending_sends),
            is_stored=(
                (lambda topic, hashes: stores.where_stored(topic, hashes, avoid=transport.busy_peers(topic)))
                if config.store_confirmation
                else None
            ),
            on_left=left,
            on_need=need,
        )
        inbox = Inbox(recorder, reports, clock, sender.own)
        missed = Missed(stores, recorder, inbox, clock, sender.in_store, regularly=config.store_confirmation)
        searches = config.store_confirmation or config.fetch_missed
        if searches:
            stores.look_out(config.topics)
        watch = HealthWatch(
            Health("edge" if config.mode == "edge" else "relay", config.topics),
            transport,
            config.topics,
            events,
            reports,
            clock,
            (sender.allow, missed.allow),
        )
        wanting = Wanting(
            transport,
            inbox,
            missed if searches else None,
            nursery,
            watch.wanted,
            network.peer_id,
            sender.is_own,
        )
        background = Background(inbox, wanting)
        messaging = Messaging(
            frozenset(config.topics),
            recorder,
            reports,
            events,
            sender,
            inbox,
            wanting,
            background,
            nursery,
            clock=clock,
            rng=environment.rng,
            subscribe_on_send=config.subscribe_on_send and config.filter_confirmation,
        )
        transport.on_echo(messaging.echoed)
        for pubsub_topic, content_topic in config.confirm_topics():
            background.watch(pubsub_topic, content_topic, receive=config.filter_confirmation)
        await _resume(recorder, inbox, messaging, clock)
        stack.callback(network.watch(watch.peer_event))
        sender.start(nursery)
        nursery.start_soon(watch.run)
        if searches:
            nursery.start_soon(missed.run)
        try:
            yield messaging, watch
            with trio.move_on_after(_LINGER_S):
                await messaging.finish()
        finally:
            messaging.close()
            if pending := len(messaging.pending_requests):
                kept = "are kept" if config.records_path is not None else "are lost: there is no records_path"
                logger.warning("messages not sent: count=%d, they %s", pending, kept)


def _telling(events: Events, clock: Callable[[], int]) -> Callable[[list[Changed]], None]:
    def tell(changes: list[Changed]) -> None:
        now_ns = clock()
        for changed in changes:
            events.emit_change(changed.before, changed.after, now_ns)

    return tell


async def _journal(
    config: NodeConfig, node_id: PeerId, environment: Environment, stack: AsyncExitStack
) -> Journal | None:
    if config.journal_path is None:
        return None
    return await stack.enter_async_context(
        open_journal(
            config.journal_path,
            node_id=node_id,
            clock=environment.clock,
            monotonic=environment.monotonic,
            rng=environment.rng,
            run_blocking=environment.run_blocking,
        )
    )


async def _records(config: NodeConfig, environment: Environment, stack: AsyncExitStack) -> RecordStore:
    retention = config.record_retention()
    if config.records_path is None:
        return MemoryRecordStore(retention)
    from pywaku.messaging.records.sqlite import open_sqlite_records  # in memory nobody needs it

    run_blocking = None if environment.run_blocking is in_thread else environment.run_blocking
    store = await open_sqlite_records(config.records_path, retention, run_blocking=run_blocking)
    stack.push_async_callback(store.close)
    return store


async def _resume(recorder: Recorder, inbox: Inbox, messaging: Messaging, clock: Callable[[], int]) -> None:
    """Take up what an earlier life of the node has left: what came already, and what is still to be sent."""
    hashes = await recorder.known_since(0, _REMEMBERED)
    inbox.remember(reversed(hashes))
    pending = await recorder.pending()
    for record in pending:
        if not messaging.go_on(record):
            recorder.put(
                Change(
                    record.message_hash,
                    clock(),
                    request_id=record.request_id,
                    sending=False,
                    error=f"the node does not operate on {record.pubsub_topic} any more",
                )
            )
    if pending:
        logger.info("sends taken up again: count=%d", len(pending))
