"""multistream-select: agreement, refusal, and what strangers may send instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError, InvalidInput
from pywaku.network.libp2p.multistream import MAX_MESSAGE, MAX_PROPOSALS, Dialer, Listener, lazy_open, message

HEADER = b"\x13/multistream/1.0.0\n"


def talk(dialer: Dialer, listener: Listener, piece: int = 10_000) -> None:
    """Let the two exchange bytes, in pieces, until neither has anything to say."""
    while True:
        output = dialer.take_output(), listener.take_output()
        if output == (b"", b""):
            return
        for target, data in zip((listener, dialer), output, strict=True):
            for start in range(0, len(data), piece):
                target.receive(data[start : start + piece])


def test_the_bytes_are_those_of_the_specification() -> None:
    dialer, listener = Dialer(["/noise"]), Listener({"/noise"})
    assert dialer.take_output() == HEADER + b"\x07/noise\n"
    assert dialer.take_output() == b""
    assert listener.take_output() == HEADER
    assert listener.receive(HEADER + b"\x07/noise\n") == "/noise"
    assert listener.take_output() == b"\x07/noise\n"
    assert dialer.receive(HEADER) is None
    assert dialer.receive(b"\x07/noise\n") == "/noise"


@pytest.mark.parametrize("piece", [1, 3, 10_000])
def test_the_first_shared_proposal_is_agreed_on(piece: int) -> None:
    dialer, listener = Dialer(["/a", "/b", "/c"]), Listener({"/b", "/c"})
    talk(dialer, listener, piece)
    assert dialer.agreed == listener.agreed == "/b"
    assert dialer.over
    assert not dialer.refused
    assert dialer.leftover == listener.leftover == b""


def test_a_dialer_whose_proposals_are_all_refused_knows() -> None:
    dialer, listener = Dialer(["/a", "/b"]), Listener(lambda name: name == "/c")
    talk(dialer, listener)
    assert dialer.refused
    assert dialer.over
    assert dialer.agreed is None
    assert listener.agreed is None
    assert dialer.receive(b"anything") is None


def test_data_may_travel_with_the_negotiation() -> None:
    listener = Listener({"/waku"})
    assert listener.receive(lazy_open("/waku") + b"request") == "/waku"
    assert listener.leftover == b"request"
    dialer = Dialer(["/waku"], opened=True)
    assert dialer.take_output() == b""
    assert dialer.receive(listener.take_output() + b"response") == "/waku"
    assert dialer.leftover == b"response"


def test_a_refused_lazy_dialer_knows() -> None:
    listener, dialer = Listener({"/other"}), Dialer(["/waku"], opened=True)
    with pytest.raises(DecodeError):
        listener.receive(lazy_open("/waku") + b"\xff" * 10)  # data that came along, read as proposals
    dialer.receive(listener.take_output())
    assert dialer.refused


def test_a_peer_that_asks_is_told_the_protocols() -> None:
    listener = Listener({"/a"}, names=["/a", "/b"])
    assert listener.receive(HEADER + message("ls")) is None
    assert listener.take_output() == HEADER + b"\x09" + b"\x03/a\n\x03/b\n" + b"\n"
    assert listener.receive(message("/a")) == "/a"


def test_a_peer_that_only_proposes_is_cut_off() -> None:
    listener = Listener(set[str]())
    listener.receive(HEADER + message("/a") * MAX_PROPOSALS)
    with pytest.raises(DecodeError):
        listener.receive(message("/a"))


def test_names_and_their_number_are_bounded() -> None:
    with pytest.raises(InvalidInput):
        Dialer([])
    with pytest.raises(InvalidInput):
        Dialer(["/a"] * (MAX_PROPOSALS + 1))
    with pytest.raises(InvalidInput):
        Dialer(["a" * MAX_MESSAGE])
    assert len(message("a" * (MAX_MESSAGE - 1))) == MAX_MESSAGE + 2


@pytest.mark.parametrize(
    "data",
    [
        b"\x14/multistream/1.0.0\n\n",
        b"\x13/multistream/2.0.0\n",
        b"GET / HTTP/1.1\r\n\r\n" + bytes(64),
        b"\x00",
        b"\x81\x08",  # 1025 bytes: refused before any of them
        b"\xff" * 10,
        HEADER + b"\x01\n",
        HEADER + b"\x04/a\xff\n",  # not UTF-8
        HEADER + b"\x03/ab",  # no newline
        HEADER + HEADER,
        HEADER + b"\x03/b\n",  # not proposed
    ],
)
def test_a_dialer_refuses_what_is_not_multistream(data: bytes) -> None:
    with pytest.raises(DecodeError):
        Dialer(["/a"]).receive(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x03/a\n",
        b"\x13/multistream/2.0.0\n",
        HEADER + b"\x00",
        HEADER + b"\x81\x08",
        HEADER + b"\x04/a\xff\n",
        HEADER + b"\x03/ab",
        HEADER + b"\xff" * 10,
    ],
)
def test_a_listener_refuses_what_is_not_multistream(data: bytes) -> None:
    with pytest.raises(DecodeError):
        Listener({"/a"}).receive(data)


@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from((HEADER, message("na"), message("ls"), message("/a"), message("/b"))),
        max_size=8,
    )
)
def test_hostile_bytes_raise_decode_error_only(pieces: list[bytes]) -> None:
    for side in (Dialer(["/a", "/b"]), Listener({"/b"}, names=["/b"])):
        try:
            for piece in pieces:
                side.receive(piece)
                if not side.over:
                    assert len(side._incoming) <= MAX_MESSAGE + 2
        except DecodeError:
            assert side.agreed is None


@given(
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True),
    st.sets(st.sampled_from("abcdef")),
    st.integers(1, 30),
)
def test_both_sides_come_to_the_same_end(proposals: list[str], supported: set[str], piece: int) -> None:
    dialer, listener = Dialer(proposals), Listener(supported)
    talk(dialer, listener, piece)
    expected = next((name for name in proposals if name in supported), None)
    assert dialer.agreed == listener.agreed == expected
    assert dialer.refused == (expected is None)
