"""The archives against the model: random inserts, retention and queries, and the same answers throughout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from pywaku.archive import Archive, ArchivePage, ArchiveQuery, RetentionPolicy, StoredMessage, open_archive
from pywaku.errors import CursorNotFound
from pywaku.message import WakuMessage
from tests.support.archives import MemoryArchive, pages
from tests.support.postgres import PostgresServer

_SECOND = 1_000_000_000
_PUBSUB_TOPICS = [f"/waku/2/rs/42/{shard}" for shard in range(3)]
_CONTENT_TOPICS = [f"/test/1/topic-{number}/proto" for number in range(4)]
# Few different times, so that many messages share one; some far away, so that they are in other partitions.
_TIMES = st.one_of(st.integers(-3, 6), st.sampled_from([-86_400, 86_400, 50_000])).map(lambda s: s * _SECOND)
_BOUNDS = st.one_of(st.none(), _TIMES, _TIMES.map(lambda time: time + 1))


def _message(pubsub_topic: str, payload: bytes, content_topic: str, time: int | None) -> StoredMessage:
    return StoredMessage.of(pubsub_topic, WakuMessage(payload, content_topic, timestamp_ns=time), 0)


_MESSAGES = st.builds(
    _message,
    st.sampled_from(_PUBSUB_TOPICS),
    st.binary(max_size=1),
    st.sampled_from(_CONTENT_TOPICS),
    st.one_of(st.none(), _TIMES),
)


@dataclass(frozen=True)
class Insert:
    messages: list[StoredMessage]


@dataclass(frozen=True)
class Retain:
    policy: RetentionPolicy
    now_ns: int


@dataclass(frozen=True)
class Ask:
    """A query; the numbers pick what to look up, and the cursor, from what has ever been inserted."""

    query: ArchiveQuery
    hashes: list[int]
    cursor: int | None


_POLICIES = st.builds(
    RetentionPolicy,
    max_age_s=st.one_of(st.none(), st.integers(1, 10), st.just(80_000)),
    max_messages=st.one_of(st.none(), st.integers(1, 30)),
)
_QUERIES = st.builds(
    ArchiveQuery,
    pubsub_topic=st.one_of(st.none(), st.sampled_from([*_PUBSUB_TOPICS, "/waku/2/rs/42/99"])),
    content_topics=st.lists(st.sampled_from(_CONTENT_TOPICS), max_size=4).map(tuple),
    start_ns=_BOUNDS,
    end_ns=_BOUNDS,
    ascending=st.booleans(),
    limit=st.integers(1, 8),
    include_data=st.booleans(),
)
_NUMBERS = st.integers(0, 1 << 16)
_ACTIONS = st.one_of(
    st.builds(Insert, st.lists(_MESSAGES, max_size=40)),
    st.builds(Ask, _QUERIES, st.just([]), st.none()),
    st.builds(Ask, _QUERIES, st.just([]), _NUMBERS),
    st.builds(Ask, _QUERIES, st.lists(_NUMBERS, min_size=1, max_size=20), st.one_of(st.none(), _NUMBERS)),
    st.builds(Retain, _POLICIES, _TIMES),
)
_RUNS = st.lists(_ACTIONS, min_size=1, max_size=12).map(
    lambda actions: [Insert([_message(_PUBSUB_TOPICS[0], b"", _CONTENT_TOPICS[0], None)]), *actions]
)


async def _same_answers(archive: Archive, actions: list[Insert | Retain | Ask]) -> None:
    model = MemoryArchive()
    ever: dict[bytes, None] = {}
    for action in actions:
        match action:
            case Insert(messages):
                ever.update(dict.fromkeys(message.message_hash for message in messages))
                assert await archive.insert(messages) == model.insert_now(messages)
            case Retain(policy, now_ns):
                assert await archive.retain(policy, now_ns) == model.retain_now(policy, now_ns)
            case Ask():
                query = _resolved(action, list(ever))
                assert await _answer(archive, query) == await _answer(model, query)
        stats, expected = await archive.stats(), await model.stats()
        assert replace(stats, bytes=0) == replace(expected, bytes=0)


def _resolved(ask: Ask, ever: list[bytes]) -> ArchiveQuery:
    query = ask.query
    if ask.hashes:
        hashes = tuple(ever[number % len(ever)] for number in ask.hashes)
        query = replace(
            query,
            pubsub_topic=None,
            content_topics=(),
            start_ns=None,
            end_ns=None,
            hashes=(*hashes, bytes(32)),
        )
    return query if ask.cursor is None else replace(query, cursor=ever[ask.cursor % len(ever)])


async def _answer(archive: Archive, query: ArchiveQuery) -> list[ArchivePage] | str:
    try:
        return await pages(archive, query)
    except CursorNotFound as error:
        return error.reason


async def _check(url: str, actions: list[Insert | Retain | Ask]) -> None:
    async with open_archive(url, retention="none") as archive:
        await _same_answers(archive, actions)


@given(actions=_RUNS)
def test_sqlite_answers_as_the_model(actions: list[Insert | Retain | Ask]) -> None:
    trio.run(_check, "sqlite://:memory:", actions)


@settings(max_examples=15)
@given(actions=_RUNS)
def test_an_sqlite_file_answers_as_the_model(actions: list[Insert | Retain | Ask]) -> None:
    with TemporaryDirectory() as directory:
        trio.run(_check, f"sqlite://{directory}/store.sqlite3", actions)


@settings(max_examples=15)
@given(actions=_RUNS)
def test_postgres_answers_as_the_model(
    postgres_server: PostgresServer, actions: list[Insert | Retain | Ask]
) -> None:
    trio.run(_check, postgres_server.create_schema(), actions)


@pytest.mark.long
@settings(max_examples=1_500)
@given(actions=_RUNS)
def test_sqlite_answers_as_the_model_for_long(actions: list[Insert | Retain | Ask]) -> None:
    trio.run(_check, "sqlite://:memory:", actions)


@pytest.mark.long
@settings(max_examples=200)
@given(actions=_RUNS)
def test_postgres_answers_as_the_model_for_long(
    postgres_server: PostgresServer, actions: list[Insert | Retain | Ask]
) -> None:
    trio.run(_check, postgres_server.create_schema(), actions)
