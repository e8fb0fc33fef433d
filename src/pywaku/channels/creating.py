"""How an application gets a channel (RELIABLE-CHANNEL-API, createReliableChannel)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pywaku.channels.channel import ReliableChannel
from pywaku.channels.conversation import Conversation
from pywaku.channels.eventlog import EventLog
from pywaku.channels.hub import ChannelHub, ChannelsConfig, open_hub
from pywaku.channels.options import ReliableChannelOptions
from pywaku.channels.ratevalues import RateLimitConfig
from pywaku.channels.rows import EVENTS, META, Row, RowChange
from pywaku.channels.store import scope_of
from pywaku.encryption import Encryption
from pywaku.errors import InvalidInput, UnsupportedTopic
from pywaku.messaging.node import Node
from pywaku.messaging.record import PlainCodec
from pywaku.topics import ContentTopic
from pywaku.wire.sds import MAX_ID_LENGTH

_HUB: Final = "channels"
_TOPIC: Final = "content-topic"


async def open_channels(
    node: Node, *, path: Path | str | None, rate_limit: RateLimitConfig | None = None
) -> None:
    """Say what holds for all channels of a node, before the first is created.

    `path` is the SQLite file that they are kept in; None keeps them in memory, and they end with the node.
    Without this call it is a file beside the node's records, or, if the node keeps none, one in the user's
    directory for state (`$XDG_STATE_HOME/pywaku`). Raises `InvalidInput` if there are channels already, and
    `RecordError` for a file that another process has open.
    """
    _require_kind("node", node, Node)
    if path is not None:
        _require_kind("path", path, str, Path)
    if rate_limit is not None:
        _require_kind("rate_limit", rate_limit, RateLimitConfig)
    config = ChannelsConfig(path, rate_limit or RateLimitConfig())
    hub = await node.parts.companions.get(_HUB, lambda: open_hub(node, config))
    if hub.config is not config:
        raise InvalidInput("the channels of this node have been opened already; do this first, and once")


async def create_reliable_channel(
    node: Node,
    *,
    channel_id: str,
    sender_id: str,
    content_topic: str,
    encryption: Encryption | None = None,
    options: ReliableChannelOptions | None = None,
    pubsub_topic: str | None = None,
) -> ReliableChannel:
    """A reliable channel on a content topic of its own, from the side of `sender_id`.

    All participants use the same `channel_id` and `content_topic`, and an encryption that understands what
    the others send. Each has a `sender_id` of its own, the same every time: what was saved under it is taken
    up. Raises `InvalidInput` for names that cannot be and for a channel that is open already,
    `UnsupportedTopic` for a shard that the node does not operate on, and `RecordError` where the file cannot
    be used.
    """
    _require_kind("node", node, Node)
    ContentTopic.parse(content_topic)
    for name, value in (("channel_id", channel_id), ("sender_id", sender_id)):
        _require_name(name, value)
    codec = PlainCodec(content_topic, pubsub_topic or node.pubsub_topic_of(content_topic))
    if codec.pubsub_topic not in node.pubsub_topics:
        raise UnsupportedTopic(f"{codec.pubsub_topic} is no shard of this node")
    if options is not None:
        _require_kind("options", options, ReliableChannelOptions)
    for method in ("encrypt", "decrypt") if encryption is not None else ():
        if not callable(getattr(encryption, method, None)):
            raise InvalidInput(
                f"encryption: has encrypt and decrypt, which a {type(encryption).__name__} has not"
            )
    options = options or ReliableChannelOptions()
    hub = await _hub(node)
    scope = scope_of(channel_id, sender_id)
    if scope in hub.scopes:
        raise InvalidInput(f"channel {channel_id!r} is open already for sender {sender_id!r}; close it first")
    hub.scopes.add(scope)
    try:
        rows = await hub.store.load(scope)
        await _check_topic(hub, scope, rows, codec)
        environment = node.parts.environment
        conversation = Conversation(
            channel_id,
            sender_id,
            options,
            rng=environment.rng,
            now_ns=environment.clock(),
            saved=[row for row in rows if row.table not in (EVENTS, META)],
        )
        log = EventLog([row for row in rows if row.table == EVENTS], lambda: channel.read())
        channel = ReliableChannel(hub, scope, conversation, log, codec, encryption, options)
        if options.auto_start:
            await channel.start()
    except BaseException:
        hub.scopes.discard(scope)
        hub.endings.pop(scope, None)
        raise
    return channel


def _require_kind(name: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds) or value == "":
        wanted = " or a ".join(kind.__name__ for kind in kinds)
        raise InvalidInput(f"{name}: is a {wanted}, not {value!r}")


def _require_name(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name}: is a text that is not empty, not {value!r}")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidInput(f"{name}: has at most {MAX_ID_LENGTH} characters, not {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name}: {value!r} cannot be encoded as UTF-8") from None


async def _hub(node: Node) -> ChannelHub:
    def opener():
        return open_hub(node, ChannelsConfig(_default_path(node), RateLimitConfig()))

    return await node.parts.companions.get(_HUB, opener)


def _default_path(node: Node) -> Path:
    records = node.config.records_path
    if records is not None:
        return Path(f"{records}-channels")
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "pywaku" / "channels.sqlite3"


async def _check_topic(hub: ChannelHub, scope: str, rows: list[Row], codec: PlainCodec) -> None:
    """A channel has one content topic for life: on another one nobody would find its messages."""
    topic = f"{codec.pubsub_topic} {codec.content_topic}".encode()
    for row in rows:
        if row.table == META and row.key == _TOPIC:
            if row.value != topic:
                raise InvalidInput(
                    f"content_topic: this channel was created on {row.value.decode()}, not {topic.decode()}"
                )
            return
    await hub.store.apply(scope, [RowChange(META, _TOPIC, topic)])
