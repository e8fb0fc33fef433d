"""Retention policies as operators write them."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pywaku.archive import DEFAULT_RETENTION, RetentionPolicy, parse_retention
from pywaku.archive.opening import keep_within
from pywaku.errors import ArchiveError, InvalidInput
from tests.support.archives import START_NS, MemoryArchive, series


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEFAULT_RETENTION, RetentionPolicy(max_age_s=172_800)),
        ("", RetentionPolicy()),
        ("none", RetentionPolicy()),
        ("capacity:25000", RetentionPolicy(max_messages=25_000)),
        ("size:30GB", RetentionPolicy(max_bytes=30 << 30)),
        ("size:2.5mb", RetentionPolicy(max_bytes=5 << 19)),
        ("size:1 TB", RetentionPolicy(max_bytes=1 << 40)),
        (" time:60 ; capacity: 5;SIZE:1KB ", RetentionPolicy(60, 5, 1024)),
        ("time:60,capacity:5", RetentionPolicy(60, 5)),
    ],
)
def test_policies_are_understood(text: str, expected: RetentionPolicy) -> None:
    assert parse_retention(text) == expected


_UNCLEAR = [
    *("time", "time:", "time:0", "time:-1", "time:1.5", "time:٣", "capacity:many", "age:5"),
    *("size:30", "size:30XB", "size:0GB", "size:GB", "size:0.0001KB"),
    *("time:1;;capacity:2", "time:1;time:2", ";"),
]


@pytest.mark.parametrize("text", _UNCLEAR)
def test_unclear_policies_are_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"time:SECONDS|twice"):
        parse_retention(text)


@given(st.text(alphabet="timecapcytysizegbGB:;,. 0123456789-"))
def test_any_text_is_a_policy_or_refused(text: str) -> None:
    try:
        policy = parse_retention(text)
    except InvalidInput:
        return
    assert isinstance(policy, RetentionPolicy)


def test_limits_below_one_are_refused() -> None:
    for limits in ({"max_age_s": 0}, {"max_messages": -1}, {"max_bytes": 0}):
        with pytest.raises(InvalidInput, match="at least 1"):
            RetentionPolicy(**limits)


def _fail(policy: RetentionPolicy, now_ns: int) -> int:
    raise ZeroDivisionError(f"{policy} {now_ns}")


@pytest.mark.virtual
async def test_the_policy_is_applied_at_intervals_and_outlives_errors() -> None:
    archive = MemoryArchive()
    archive.insert_now(series(10))
    now = START_NS
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_within, archive, RetentionPolicy(max_messages=4), 60.0, lambda: now)
        await trio.sleep(1)
        assert len(archive.kept) == 4
        archive.failure = ArchiveError("the disk is on fire")
        archive.insert_now(series(10))
        await trio.sleep(60)
        assert len(archive.kept) == 10
        archive.failure = None
        await trio.sleep(60)
        assert len(archive.kept) == 4
        archive.insert_now(series(10))
        archive.retain_now = _fail
        await trio.sleep(60)
        del archive.retain_now
        await trio.sleep(60)
        assert len(archive.kept) == 4
        nursery.cancel_scope.cancel()
