"""The request protocols: metadata, light push, filter, store, peer exchange."""

from __future__ import annotations

import pytest

from pywaku.errors import DecodeError
from pywaku.message import WakuMessage
from pywaku.wire import filter as filter_wire
from pywaku.wire import lightpush, lightpush_legacy, metadata, peer_exchange, store
from pywaku.wire.message import encode_message
from tests.support.fields import field

MESSAGE = WakuMessage(b"payload", "/a/1/b/c", timestamp_ns=5)
ENCODED = encode_message(MESSAGE)
HASH = bytes(range(32))


def test_the_protocol_identifiers() -> None:
    assert metadata.PROTOCOL == "/vac/waku/metadata/1.0.0"
    assert lightpush.PROTOCOL == "/vac/waku/lightpush/3.0.0"
    assert lightpush_legacy.PROTOCOL == "/vac/waku/lightpush/2.0.0-beta1"
    assert filter_wire.SUBSCRIBE_PROTOCOL == "/vac/waku/filter-subscribe/2.0.0-beta1"
    assert filter_wire.PUSH_PROTOCOL == "/vac/waku/filter-push/2.0.0-beta1"
    assert store.PROTOCOL == "/vac/waku/store-query/3.0.0"
    assert peer_exchange.PROTOCOL == "/vac/waku/peer-exchange/2.0.0-alpha1"


# 66/WAKU2-METADATA


def test_metadata_has_the_cluster_and_the_shards() -> None:
    value = metadata.Metadata(42, (0, 7))
    assert metadata.encode_metadata(value) == field(1, 42) + field(2, 0) + field(2, 7)
    assert metadata.decode_metadata(metadata.encode_metadata(value)) == value


def test_shards_are_written_one_by_one_and_read_packed_as_well() -> None:
    # js-waku cannot read packed shards, and then takes the whole answer for broken.
    assert metadata.decode_metadata(field(1, 42) + field(2, b"\x00\x07")) == metadata.Metadata(42, (0, 7))


def test_an_absent_cluster_differs_from_cluster_zero() -> None:
    assert metadata.decode_metadata(b"") == metadata.Metadata(None)
    assert metadata.decode_metadata(field(1, 0)) == metadata.Metadata(0)
    assert metadata.encode_metadata(metadata.Metadata(0)) == field(1, 0)


def test_more_shards_than_a_cluster_has_are_refused() -> None:
    assert len(metadata.decode_metadata(field(2, bytes(1024))).shards) == 1024
    with pytest.raises(DecodeError, match="1025 shards"):
        metadata.decode_metadata(field(2, bytes(1025)))


# WAKU-LIGHTPUSH


def test_a_light_push_request_byte_by_byte() -> None:
    request = lightpush.LightPushRequest("id", MESSAGE, "/waku/2/rs/1/2")
    encoding = field(1, b"id") + field(20, b"/waku/2/rs/1/2") + field(21, ENCODED)
    assert lightpush.encode_request(request) == encoding
    assert lightpush.decode_request(encoding) == request


def test_a_light_push_request_may_do_without_a_pubsub_topic() -> None:
    request = lightpush.LightPushRequest("id", MESSAGE)
    assert lightpush.encode_request(request) == field(1, b"id") + field(21, ENCODED)
    assert lightpush.decode_request(lightpush.encode_request(request)).pubsub_topic is None


def test_a_light_push_request_without_a_message_is_refused() -> None:
    with pytest.raises(DecodeError, match="no message"):
        lightpush.decode_request(field(1, b"id"))
    with pytest.raises(DecodeError, match="content_topic"):
        lightpush.decode_request(field(1, b"id") + field(21, b""))


def test_a_light_push_response_byte_by_byte() -> None:
    response = lightpush.LightPushResponse("id", lightpush.Status.SUCCESS, "fine", 3)
    encoding = field(1, b"id") + field(10, 200) + field(11, b"fine") + field(12, 3)
    assert lightpush.encode_response(response) == encoding
    assert lightpush.decode_response(encoding) == response
    assert response.is_success


def test_the_status_codes_of_light_push() -> None:
    assert {status.name: status.value for status in lightpush.Status} == {
        "SUCCESS": 200,
        "BAD_REQUEST": 400,
        "PAYLOAD_TOO_LARGE": 413,
        "UNSUPPORTED_PUBSUB_TOPIC": 421,
        "TOO_MANY_REQUESTS": 429,
        "INTERNAL_SERVER_ERROR": 500,
        "NO_PEERS_TO_RELAY": 503,
    }


def test_codes_that_are_not_in_the_list_are_decoded_and_no_success() -> None:
    response = lightpush.decode_response(field(1, b"id") + field(10, 599))
    assert response == lightpush.LightPushResponse("id", 599)
    assert not response.is_success
    assert not lightpush.decode_response(field(1, b"id")).is_success


# 19/WAKU2-LIGHTPUSH


def test_a_legacy_light_push_request_byte_by_byte() -> None:
    request = lightpush_legacy.PushRequest("id", "/waku/2/rs/1/2", MESSAGE)
    encoding = field(1, b"id") + field(2, field(1, b"/waku/2/rs/1/2") + field(2, ENCODED))
    assert lightpush_legacy.encode_request(request) == encoding
    assert lightpush_legacy.decode_request(encoding) == request


def test_a_legacy_light_push_response_byte_by_byte() -> None:
    response = lightpush_legacy.PushResponse("id", is_success=True, info="fine")
    encoding = field(1, b"id") + field(3, field(1, 1) + field(2, b"fine"))
    assert lightpush_legacy.encode_response(response) == encoding
    assert lightpush_legacy.decode_response(encoding) == response
    failure = lightpush_legacy.PushResponse("id", is_success=False)
    assert lightpush_legacy.encode_response(failure) == field(1, b"id") + field(3, b"")


def test_a_legacy_rpc_of_the_other_kind_is_refused() -> None:
    with pytest.raises(DecodeError, match="no request"):
        lightpush_legacy.decode_request(field(1, b"id") + field(3, b""))
    with pytest.raises(DecodeError, match="no response"):
        lightpush_legacy.decode_response(field(1, b"id") + field(2, field(2, ENCODED)))
    with pytest.raises(DecodeError, match="no message"):
        lightpush_legacy.decode_request(field(1, b"id") + field(2, b""))


# 12/WAKU2-FILTER


def test_a_filter_request_byte_by_byte() -> None:
    request = filter_wire.FilterSubscribeRequest(
        "id", filter_wire.FilterSubscribeType.UNSUBSCRIBE, "/waku/2/rs/1/2", ("/a/1/b/c", "/a/1/d/c")
    )
    encoding = (
        field(1, b"id")
        + field(2, 2)
        + field(10, b"/waku/2/rs/1/2")
        + field(11, b"/a/1/b/c")
        + field(11, b"/a/1/d/c")
    )
    assert filter_wire.encode_subscribe_request(request) == encoding
    assert filter_wire.decode_subscribe_request(encoding) == request


def test_the_types_of_filter_requests() -> None:
    kinds = {kind.name: kind.value for kind in filter_wire.FilterSubscribeType}
    assert kinds == {"SUBSCRIBER_PING": 0, "SUBSCRIBE": 1, "UNSUBSCRIBE": 2, "UNSUBSCRIBE_ALL": 3}


@pytest.mark.parametrize("kind", [4, 2**31 - 1, 2**64 - 1])
def test_a_filter_request_of_an_unknown_type_is_refused(kind: int) -> None:
    with pytest.raises(DecodeError, match="no known type"):
        filter_wire.decode_subscribe_request(field(1, b"id") + field(2, kind))


def test_a_filter_request_names_at_most_100_content_topics() -> None:
    assert len(filter_wire.decode_subscribe_request(field(11, b"t") * 100).content_topics) == 100
    with pytest.raises(DecodeError, match="101 content topics, more than 100"):
        filter_wire.decode_subscribe_request(field(11, b"t") * 101)


def test_a_content_topic_in_a_list_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(DecodeError, match="not a "):
        filter_wire.decode_subscribe_request(field(11, b"t") + field(11, b"\xff"))


def test_a_filter_response_byte_by_byte() -> None:
    response = filter_wire.FilterSubscribeResponse("id", 404, "no subscription")
    encoding = field(1, b"id") + field(10, 404) + field(11, b"no subscription")
    assert filter_wire.encode_subscribe_response(response) == encoding
    assert filter_wire.decode_subscribe_response(encoding) == response


@pytest.mark.parametrize(
    ("code", "success"), [(0, False), (199, False), (200, True), (299, True), (300, False)]
)
def test_codes_from_200_to_299_are_success(code: int, success: bool) -> None:
    assert filter_wire.FilterSubscribeResponse("id", code).is_success is success
    assert store.StoreQueryResponse("id", code).is_success is success


def test_a_filter_push_must_contain_one_message() -> None:
    push = filter_wire.MessagePush(MESSAGE, "/waku/2/rs/1/2")
    encoding = field(1, ENCODED) + field(2, b"/waku/2/rs/1/2")
    assert filter_wire.encode_push(push) == encoding
    assert filter_wire.decode_push(encoding) == push
    assert filter_wire.decode_push(field(1, ENCODED)) == filter_wire.MessagePush(MESSAGE)
    with pytest.raises(DecodeError, match="no message"):
        filter_wire.decode_push(field(2, b"/waku/2/rs/1/2"))


# 13/WAKU2-STORE


def test_a_store_request_byte_by_byte() -> None:
    request = store.StoreQueryRequest(
        "id",
        include_data=True,
        pubsub_topic="p",
        content_topics=("c", "d"),
        time_start=-1,
        time_end=0,
        message_hashes=(HASH,),
        pagination_cursor=HASH,
        pagination_forward=True,
        pagination_limit=100,
    )
    encoding = (
        field(1, b"id")
        + field(2, 1)
        + field(10, b"p")
        + field(11, b"c")
        + field(11, b"d")
        + field(12, 1)  # zigzag of -1
        + field(13, 0)
        + field(20, HASH)
        + field(51, HASH)
        + field(52, 1)
        + field(53, 100)
    )
    assert store.encode_request(request) == encoding
    assert store.decode_request(encoding) == request


def test_a_store_request_without_criteria_asks_for_everything_backward_without_data() -> None:
    assert store.decode_request(field(1, b"id")) == store.StoreQueryRequest("id")
    assert not store.StoreQueryRequest("id").include_data
    assert not store.StoreQueryRequest("id").pagination_forward


def test_a_store_response_byte_by_byte() -> None:
    entries = (store.StoreEntry(HASH, MESSAGE, "p"), store.StoreEntry(HASH[::-1]))
    response = store.StoreQueryResponse("id", 200, "fine", entries, HASH)
    encoding = (
        field(1, b"id")
        + field(10, 200)
        + field(11, b"fine")
        + field(20, field(1, HASH) + field(2, ENCODED) + field(3, b"p"))
        + field(20, field(1, HASH[::-1]))
        + field(51, HASH)
    )
    assert store.encode_response(response) == encoding
    assert store.decode_response(encoding) == response


def test_a_store_entry_must_contain_the_hash() -> None:
    with pytest.raises(DecodeError, match="has 32 bytes, not 0"):
        store.decode_response(field(20, field(2, ENCODED) + field(3, b"p")))


@pytest.mark.parametrize("part", [field(2, ENCODED), field(3, b"p")])
def test_a_store_entry_must_not_have_message_or_topic_without_the_other(part: bytes) -> None:
    with pytest.raises(DecodeError, match="without the other"):
        store.decode_response(field(20, field(1, HASH) + part))


@pytest.mark.parametrize("number", [20, 51])
@pytest.mark.parametrize("size", [0, 31, 33])
def test_message_hashes_have_32_bytes(number: int, size: int) -> None:
    with pytest.raises(DecodeError, match=f"has 32 bytes, not {size}"):
        store.decode_request(field(number, bytes(size)))


def test_store_requests_and_responses_are_bounded() -> None:
    with pytest.raises(DecodeError, match="1001 message hashes"):
        store.decode_request(field(20, HASH) * 1001)
    with pytest.raises(DecodeError, match="1001 content topics"):
        store.decode_request(field(11, b"t") * 1001)
    with pytest.raises(DecodeError, match="1001 messages"):
        store.decode_response(field(20, field(1, HASH)) * 1001)


def test_a_store_response_without_a_code_is_no_success() -> None:
    assert not store.decode_response(field(1, b"id")).is_success


# 34/WAKU2-PEER-EXCHANGE


def test_a_peer_exchange_byte_by_byte() -> None:
    query = peer_exchange.PeerExchangeQuery(5)
    assert peer_exchange.encode_query(query) == field(1, field(1, 5))
    assert peer_exchange.decode_query(field(1, field(1, 5))) == query
    response = peer_exchange.PeerExchangeResponse((b"one", b"two"))
    encoding = field(2, field(1, field(1, b"one")) + field(1, field(1, b"two")))
    assert peer_exchange.encode_response(response) == encoding
    assert peer_exchange.decode_response(encoding) == response


def test_a_peer_exchange_of_the_other_kind_is_refused() -> None:
    with pytest.raises(DecodeError, match="no query"):
        peer_exchange.decode_query(field(2, b""))
    with pytest.raises(DecodeError, match="no response"):
        peer_exchange.decode_response(field(1, b""))


def test_peer_exchange_responses_are_bounded() -> None:
    with pytest.raises(DecodeError, match="1001 peers"):
        peer_exchange.decode_response(field(2, field(1, field(1, b"x")) * 1001))
    assert peer_exchange.decode_response(field(2, field(1, field(1, bytes(300))))).enrs == (bytes(300),)
    with pytest.raises(DecodeError, match="more than 300 bytes"):
        peer_exchange.decode_response(field(2, field(1, field(1, bytes(301)))))
