"""Throw damaged bytes at every decoder: `python -m tests.fuzz [--seconds 60] [--seed N] [--only NAME]`.

Anything that comes out of a decoder other than a value or a `DecodeError` ends the run, with the input as hex
and the seed that leads to it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

import hypothesis

from pywaku.errors import DecodeError
from tests.support.damage import damaged
from tests.support.decoders import DECODERS, Decoder

SAMPLES = 60
ROUND = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz for a while; 0 if nothing was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="start from this instead of from chance")
    parser.add_argument("--only", default="", help="only decoders with this in their name")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    decoders = [decoder for decoder in DECODERS if options.only in decoder.name]
    if not decoders:
        print(f"no decoder has {options.only!r} in its name")
        return 2
    corpus = {decoder.name: samples(decoder, rng.getrandbits(32)) for decoder in decoders}
    inputs = refused = 0
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        for decoder in decoders:
            for _ in range(ROUND):
                data = attempt(corpus[decoder.name], rng)
                inputs += 1
                try:
                    decoder.decode(data)
                except DecodeError:
                    refused += 1
                except Exception as error:
                    print(f"{decoder.name}: {type(error).__name__}: {error}\ninput {data.hex()}\nseed {seed}")
                    return 1
    print(f"{inputs} inputs for {len(decoders)} decoders: {refused} refused, {inputs - refused} decoded")
    return 0


def samples(decoder: Decoder, seed: int) -> list[bytes]:
    """Some valid encodings, the same ones for the same seed."""
    found: list[bytes] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=SAMPLES,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    @hypothesis.given(decoder.encodings)
    def collect(encoding: bytes) -> None:
        found.append(encoding)

    collect()
    return found


def attempt(corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """Bytes to try: mostly a damaged encoding, now and then nothing but chance."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randint(0, 300))
    return damaged(rng.choice(corpus), rng.choice(corpus), rng)


if __name__ == "__main__":
    sys.exit(main())
