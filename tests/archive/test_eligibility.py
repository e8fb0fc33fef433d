"""Which messages are kept (13/WAKU2-STORE, Waku Message Store Eligibility)."""

from __future__ import annotations

import pytest

from pywaku.archive import Ineligible, why_ineligible
from pywaku.message import WakuMessage

_NOW = 1_700_000_000_000_000_000
_SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("timestamp_ns", "expected"),
    [
        (_NOW, None),
        (_NOW - 20 * _SECOND, None),
        (_NOW + 20 * _SECOND, None),
        (_NOW - 20 * _SECOND - 1, Ineligible.TOO_OLD),
        (_NOW + 20 * _SECOND + 1, Ineligible.IN_FUTURE),
        (None, Ineligible.NO_TIMESTAMP),
        (0, Ineligible.NO_TIMESTAMP),
        (-_NOW, Ineligible.TOO_OLD),
        ((1 << 63) - 1, Ineligible.IN_FUTURE),
        (-(1 << 63), Ineligible.TOO_OLD),
    ],
)
def test_the_timestamp_is_within_twenty_seconds_of_now(
    timestamp_ns: int | None, expected: Ineligible | None
) -> None:
    message = WakuMessage(b"", "/a/1/b/proto", timestamp_ns=timestamp_ns)
    assert why_ineligible(message, _NOW) is expected


@pytest.mark.parametrize("ephemeral", [None, False, True])
def test_ephemeral_messages_are_not_kept(ephemeral: bool | None) -> None:
    message = WakuMessage(b"", "/a/1/b/proto", timestamp_ns=_NOW, ephemeral=ephemeral)
    assert why_ineligible(message, _NOW) is (Ineligible.EPHEMERAL if ephemeral else None)
