"""23/WAKU2-TOPICS and RELAY-SHARDING: names, and the shards they lead to."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidTopic
from pywaku.topics import (
    DEFAULT_PUBSUB_TOPIC,
    ContentTopic,
    auto_shard,
    auto_shard_topic,
    check_pubsub_topic,
    parse_shard_topic,
    shard_topic,
)

PARTS = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=12)
TOPICS = st.builds(ContentTopic, PARTS, PARTS, PARTS, PARTS, st.none() | st.integers(0, 10**10 - 1))


def test_the_short_format_has_application_version_name_and_encoding() -> None:
    topic = ContentTopic.parse("/toychat/2/huilong/proto")
    assert topic == ContentTopic("toychat", "2", "huilong", "proto")
    assert topic.generation is None


def test_the_full_format_has_a_generation_as_well() -> None:
    assert ContentTopic.parse("/0/myapp/1/mytopic/cbor") == ContentTopic(
        "myapp", "1", "mytopic", "cbor", generation=0
    )


def test_bridged_topics_of_waku_1_are_content_topics() -> None:
    assert ContentTopic.parse("/waku/1/0x007f80ff/rfc26").name == "0x007f80ff"


@given(TOPICS)
def test_parsing_gives_back_what_was_written(topic: ContentTopic) -> None:
    assert ContentTopic.parse(str(topic)) == topic


@given(st.text(st.sampled_from("/a0١ é\ud800"), max_size=14))
def test_a_text_is_a_topic_that_is_written_the_same_or_is_refused(text: str) -> None:
    try:
        topic = ContentTopic.parse(text)
    except InvalidTopic:
        return
    assert str(topic) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not start with a slash"),
        (
            "myapp/1/mytopic/cbor",
            "does not start with a slash; it is /{application}/{version}/{name}/{encoding}",
        ),
        ("/myapp/1/mytopic", "has 3 parts; it is /{application}"),
        ("/0/myapp/1/mytopic/cbor/more", "has 6 parts"),
        ("/myapp/1/my/topic/cbor", "the first is a generation, a number such as 0 (a name holds no slash)"),
        ("/-1/myapp/1/mytopic/cbor", "a generation"),
        ("/00/myapp/1/mytopic/cbor", "a generation"),
        ("/١/myapp/1/mytopic/cbor", "a generation"),
        ("/" + "9" * 5000 + "/myapp/1/mytopic/cbor", "a generation"),
        ("//1/mytopic/cbor", "the application of a content topic is empty"),
        ("/myapp//mytopic/cbor", "the version of a content topic is empty"),
        ("/myapp/1//cbor", "the name of a content topic is empty"),
        ("/myapp/1/mytopic/", "the encoding of a content topic is empty"),
        ("/my\ud800app/1/mytopic/cbor", "UTF-8"),
    ],
)
def test_content_topics_must_follow_the_format(text: str, reason: str) -> None:
    with pytest.raises(InvalidTopic) as caught:
        ContentTopic.parse(text)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 400


def test_parts_hold_no_slash() -> None:
    with pytest.raises(InvalidTopic, match="holds no slash"):
        ContentTopic("my/app", "1", "topic", "proto")


@pytest.mark.parametrize("generation", [-1, 10**10])
def test_a_generation_is_a_number_from_zero_on(generation: int) -> None:
    with pytest.raises(InvalidTopic, match="generation"):
        ContentTopic("app", "1", "topic", "proto", generation)


def test_a_static_shard_names_its_cluster_and_its_number() -> None:
    assert shard_topic(0, 2) == "/waku/2/rs/0/2"
    assert shard_topic(65535, 1023) == "/waku/2/rs/65535/1023"


@given(st.integers(0, 65535), st.integers(0, 1023))
def test_the_topic_of_a_shard_leads_back_to_it(cluster_id: int, shard: int) -> None:
    assert parse_shard_topic(shard_topic(cluster_id, shard)) == (cluster_id, shard)


@pytest.mark.parametrize(("cluster_id", "shard"), [(-1, 0), (65536, 0), (0, -1), (0, 1024)])
def test_there_are_65536_clusters_of_1024_shards(cluster_id: int, shard: int) -> None:
    with pytest.raises(InvalidTopic, match=r"0 to (65535|1023), not"):
        shard_topic(cluster_id, shard)
    with pytest.raises(InvalidTopic):
        parse_shard_topic(f"/waku/2/rs/{cluster_id}/{shard}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/waku/2/rs/0",
        "/waku/2/rs/0/2/",
        "/waku/2/rs/0/2/proto",
        "/waku/2/rs/00/2",
        "/waku/2/rs/0/02",
        "/waku/2/rs/ 0/2",
        "/waku/2/rs/+0/2",
        "/waku/2/rs/0/2\n",
        "/waku/2/rs/1_0/2",
        "/waku/2/rs/٢/2",
        "/waku/2/rs//2",
        "/waku/2/RS/0/2",
        "0/2",
        DEFAULT_PUBSUB_TOPIC,
        "/waku/2/rs/0/" + "1" * 5000,
    ],
)
def test_what_is_no_static_shard_is_refused(text: str) -> None:
    with pytest.raises(InvalidTopic, match="/waku/2/rs/<cluster id>/<shard>") as caught:
        parse_shard_topic(text)
    assert len(str(caught.value)) < 300


def test_the_default_pubsub_topic() -> None:
    assert DEFAULT_PUBSUB_TOPIC == "/waku/2/default-waku/proto"


@pytest.mark.parametrize("text", [DEFAULT_PUBSUB_TOPIC, "/waku/2/status/", "/waku/2/rs/16/43", "/waku/2/rsx"])
def test_pubsub_topics_should_be_in_the_namespace_of_waku_2(text: str) -> None:
    assert check_pubsub_topic(text) == text


@pytest.mark.parametrize(
    "text", ["", "/waku/2/", "/waku/1/x", "waku/2/x", "/waku/2/rs/", "/waku/2/rs/1/1024"]
)
def test_other_pubsub_topics_are_refused(text: str) -> None:
    with pytest.raises(InvalidTopic):
        check_pubsub_topic(text)


def test_the_shard_is_the_hash_of_application_and_version_modulo_the_shards() -> None:
    digest = "8e541178adbd8126068c47be6a221d77d64837221893a8e4e53139fb802d4928"
    assert sha256(bytes.fromhex("6d7961707031")).hexdigest() == digest
    assert auto_shard("/myapp/1/mytopic/cbor", 8) == 0
    for count in (1, 2, 3, 5, 7, 8, 1000, 1024):
        assert auto_shard("/myapp/1/mytopic/cbor", count) == int(digest, 16) % count


def test_the_default_number_of_shards_is_one() -> None:
    assert auto_shard("/toychat/2/huilong/proto") == 0
    assert auto_shard_topic("/toychat/2/huilong/proto", 32) == "/waku/2/rs/32/0"


@given(TOPICS, PARTS, PARTS, st.integers(1, 1024))
def test_name_and_encoding_do_not_change_the_shard(
    topic: ContentTopic, name: str, encoding: str, count: int
) -> None:
    one = ContentTopic(topic.application, topic.version, topic.name, topic.encoding)
    other = ContentTopic(topic.application, topic.version, name, encoding)
    assert auto_shard(one, count) == auto_shard(other, count) < count


@given(TOPICS, st.integers(1, 1024))
def test_an_omitted_generation_is_zero(topic: ContentTopic, count: int) -> None:
    short = ContentTopic(topic.application, topic.version, topic.name, topic.encoding)
    full = ContentTopic(topic.application, topic.version, topic.name, topic.encoding, generation=0)
    assert auto_shard(short, count) == auto_shard(full, count)


def test_generations_without_a_definition_are_refused() -> None:
    with pytest.raises(
        InvalidTopic, match="is of generation 1; automatic sharding is defined for generation 0"
    ):
        auto_shard("/1/myapp/1/mytopic/cbor", 8)


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_a_network_has_between_one_and_1024_shards(count: int) -> None:
    with pytest.raises(InvalidTopic, match="1 to 1024 shards"):
        auto_shard("/myapp/1/mytopic/cbor", count)


def test_the_topic_of_an_automatic_shard() -> None:
    assert auto_shard_topic("/0/myapp/1/mytopic/cbor", 1, 8) == "/waku/2/rs/1/0"
    assert auto_shard_topic(ContentTopic("toychat", "2", "huilong", "proto"), 1, 8) == "/waku/2/rs/1/3"


class Untyped:
    """What a program that is not type-checked may pass."""

    def __getitem__(self, value: object) -> Any:
        return value


UNTYPED = Untyped()


@pytest.mark.parametrize(
    "call",
    [
        lambda: ContentTopic.parse(UNTYPED[None]),
        lambda: auto_shard(UNTYPED[None], 8),
        lambda: auto_shard("/a/1/b/c", UNTYPED["8"]),
        lambda: shard_topic(1, True),
        lambda: shard_topic(UNTYPED[1.0], 0),
        lambda: parse_shard_topic(UNTYPED[b"/waku/2/rs/1/0"]),
    ],
)
def test_values_of_the_wrong_kind_are_invalid_topics(call: Callable[[], object]) -> None:
    with pytest.raises(InvalidTopic, match=r"is an? (str|int), not"):
        call()
