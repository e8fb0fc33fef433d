"""Whatever arrives, a decoder gives a value or raises `DecodeError`, and nothing else."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku import wire
from pywaku.errors import DecodeError
from tests import fuzz
from tests.support import decoders
from tests.support.damage import damaged
from tests.support.decoders import DECODERS, Decoder

each_decoder = pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)


@each_decoder
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_decode_error(decoder: Decoder, data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decoder.decode(data)


@each_decoder
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_damaged_encodings_are_a_value_or_a_decode_error(
    decoder: Decoder, data: st.DataObject, seed: int
) -> None:
    one, other = data.draw(decoder.encodings), data.draw(decoder.encodings)
    with contextlib.suppress(DecodeError):
        decoder.decode(damaged(one, other, random.Random(seed)))


@each_decoder
@given(data=st.data())
def test_valid_encodings_are_decoded(decoder: Decoder, data: st.DataObject) -> None:
    decoder.decode(data.draw(decoder.encodings))


@each_decoder
@pytest.mark.parametrize(
    "data",
    [
        b"\x0b" * 10_000,
        b"\x0a\xff\xff\xff\xff\x07",
        b"\x0a" + b"\xff" * 9 + b"\x01",
        b"\xff" * 10_000,
        bytes(10_000),
        b"\x0a\x00" * 100_000,
        b"\x12\x00" * 100_000,
        b"\x1a\x02\x0a\x00" * 50_000,
    ],
    ids=["deep", "2 GiB", "2^64", "ones", "zeros", "many firsts", "many seconds", "many thirds"],
)
def test_deep_large_and_many_are_a_value_or_a_decode_error(decoder: Decoder, data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decoder.decode(data)


def test_no_decoder_of_the_wire_room_is_forgotten() -> None:
    tried = Path(decoders.__file__).read_text()
    for module in pkgutil.iter_modules(wire.__path__, "pywaku.wire."):
        if not module.ispkg:
            for name in dir(importlib.import_module(module.name)):
                assert not name.startswith("decode_") or f".{name}" in tried, f"{module.name}.{name}"


def test_the_fuzzer_finds_nothing_in_a_moment(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--seconds", "0.2", "--seed", "7"]) == 0
    assert "seed 7" in capsys.readouterr().out


def test_the_fuzzer_reports_what_it_finds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def weak(data: bytes) -> int:
        return data[0] // (data[0] - 2)

    monkeypatch.setattr(fuzz, "DECODERS", [Decoder("weak", weak, st.just(b"\x01\x02\x03"))])
    assert fuzz.main(["--seconds", "5", "--seed", "1"]) == 1
    first = capsys.readouterr().out
    assert "weak: " in first
    assert "input " in first
    assert fuzz.main(["--seconds", "5", "--seed", "1"]) == 1
    assert capsys.readouterr().out == first
