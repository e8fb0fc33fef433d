"""Content topics, pubsub topics and the shards that connect them (23/WAKU2-TOPICS, RELAY-SHARDING)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

from pywaku.errors import InvalidTopic

DEFAULT_PUBSUB_TOPIC: Final = "/waku/2/default-waku/proto"
"""The topic of a network without shards (23/WAKU2-TOPICS, Default PubSub Topic)."""

MAX_CLUSTER_ID: Final = 65535
SHARDS_PER_CLUSTER: Final = 1024
DEFAULT_SHARD_COUNT: Final = 1
"""Shards of a network that uses automatic sharding and does not say how many it has."""

_PUBSUB_PREFIX: Final = "/waku/2/"
_SHARD_PREFIX: Final = "/waku/2/rs/"
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_SHORT_FORM: Final = "/{application}/{version}/{name}/{encoding}"
_FULL_FORM: Final = "/{generation}" + _SHORT_FORM


@dataclass(frozen=True, slots=True)
class ContentTopic:
    """A content topic in its parts; `str` gives the text back.

    `generation` is None in the short format, where it is omitted and means 0. Both texts name the same shard,
    but they are two content topics.
    """

    application: str
    version: str
    name: str
    encoding: str
    generation: int | None = None

    def __post_init__(self) -> None:
        for label in ("application", "version", "name", "encoding"):
            _require_part(label, getattr(self, label))
        if self.generation is not None and not 0 <= self.generation < 10**10:
            raise InvalidTopic(
                f"the generation of a content topic is a number from 0 on, not {self.generation}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """A content topic from its text, in the short or the full format; raises `InvalidTopic`."""
        _require_text(text, "content topic")
        if not text.startswith("/"):
            raise InvalidTopic(
                f"content topic {_quoted(text)} does not start with a slash; it is {_SHORT_FORM}"
            )
        parts = text[1:].split("/")
        if len(parts) == 4:
            return cls(parts[0], parts[1], parts[2], parts[3])
        if len(parts) != 5:
            raise InvalidTopic(
                f"content topic {_quoted(text)} has {len(parts)} parts; it is {_SHORT_FORM} or {_FULL_FORM}"
            )
        if not _NUMBER.fullmatch(parts[0]):
            raise InvalidTopic(
                f"content topic {_quoted(text)} has five parts, so the first is a generation, a "
                "number such as 0 (a name holds no slash)"
            )
        return cls(parts[1], parts[2], parts[3], parts[4], generation=int(parts[0]))

    def __str__(self) -> str:
        short = f"/{self.application}/{self.version}/{self.name}/{self.encoding}"
        return short if self.generation is None else f"/{self.generation}{short}"


def shard_topic(cluster_id: int, shard: int) -> str:
    """The pubsub topic of a static shard, such as `/waku/2/rs/16/43`; raises `InvalidTopic`."""
    _require_number(cluster_id, "cluster id")
    _require_number(shard, "shard")
    if not 0 <= cluster_id <= MAX_CLUSTER_ID:
        raise InvalidTopic(f"a cluster id is 0 to {MAX_CLUSTER_ID}, not {cluster_id}")
    if not 0 <= shard < SHARDS_PER_CLUSTER:
        raise InvalidTopic(f"a shard is 0 to {SHARDS_PER_CLUSTER - 1}, not {shard}")
    return f"{_SHARD_PREFIX}{cluster_id}/{shard}"


def parse_shard_topic(text: str) -> tuple[int, int]:
    """Cluster id and shard of a static shard's pubsub topic; raises `InvalidTopic`."""
    _require_text(text, "pubsub topic")
    numbers = text.removeprefix(_SHARD_PREFIX).split("/")
    if not text.startswith(_SHARD_PREFIX) or len(numbers) != 2 or not all(map(_NUMBER.fullmatch, numbers)):
        raise InvalidTopic(f"{_quoted(text)} is no shard; that is {_SHARD_PREFIX}<cluster id>/<shard>")
    cluster_id, shard = map(int, numbers)
    shard_topic(cluster_id, shard)
    return cluster_id, shard


def check_pubsub_topic(text: str) -> str:
    """`text`, if it has the form of a pubsub topic, `/waku/2/{topic-name}`; else raises `InvalidTopic`.

    What says that it is a static shard (`/waku/2/rs/…`) has to be one.
    """
    if not text.startswith(_PUBSUB_PREFIX) or text == _PUBSUB_PREFIX:
        raise InvalidTopic(f"pubsub topic {_quoted(text)} is not of the form {_PUBSUB_PREFIX}<name>")
    if text.startswith(_SHARD_PREFIX):
        parse_shard_topic(text)
    return text


def auto_shard(content_topic: ContentTopic | str, shard_count: int = DEFAULT_SHARD_COUNT) -> int:
    """The shard of a content topic in a network of `shard_count` shards (RELAY-SHARDING, Automatic Sharding).

    sha256(application ‖ version) modulo `shard_count`. Only generation 0 has a definition.
    """
    _require_number(shard_count, "number of shards")
    if not 1 <= shard_count <= SHARDS_PER_CLUSTER:
        raise InvalidTopic(f"a network has 1 to {SHARDS_PER_CLUSTER} shards, not {shard_count}")
    topic = content_topic if isinstance(content_topic, ContentTopic) else ContentTopic.parse(content_topic)
    if topic.generation:
        raise InvalidTopic(
            f"content topic {_quoted(str(topic))} is of generation {topic.generation}; automatic sharding is "
            "defined for generation 0 only"
        )
    digest = sha256(topic.application.encode() + topic.version.encode()).digest()
    return int.from_bytes(digest) % shard_count


def auto_shard_topic(
    content_topic: ContentTopic | str, cluster_id: int, shard_count: int = DEFAULT_SHARD_COUNT
) -> str:
    """The pubsub topic that carries a content topic in a cluster with automatic sharding."""
    return shard_topic(cluster_id, auto_shard(content_topic, shard_count))


def _require_part(label: str, value: str) -> None:
    if not value:
        raise InvalidTopic(f"the {label} of a content topic is empty; the form is {_SHORT_FORM}")
    if "/" in value:
        raise InvalidTopic(f"the {label} of a content topic holds no slash; {_quoted(value)} does")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidTopic(f"the {label} of a content topic holds what UTF-8 cannot express") from None


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "…")


def _require_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise InvalidTopic(f"a {what} is a str, not {value!r}")


def _require_number(value: object, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidTopic(f"a {what} is an int, not {value!r}")
