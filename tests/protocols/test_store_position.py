"""How far a query has come, in pages that are made up here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pywaku.protocols.store import StoreAnswerInvalid, StoreEntry, StoreQuery, StoreQueryResponse
from pywaku.protocols.store.position import REMEMBERED, Position

KEYS = [number.to_bytes(32) for number in range(5000)]
BY_KEY = StoreQuery(include_data=False, page_size=10)


def page(keys: Sequence[bytes], *, more: bool = True) -> StoreQueryResponse:
    """A page of hashes of a forward query."""
    entries = tuple([StoreEntry(key) for key in keys])
    return StoreQueryResponse("r", 200, "OK", entries, keys[-1] if more and keys else None)


def hashes(entries: Sequence[StoreEntry]) -> list[bytes]:
    """Of entries."""
    return [entry.message_hash for entry in entries]


def at(count: int) -> Position:
    """After so many hashes, in pages of ten."""
    position = Position(BY_KEY)
    for start in range(0, count, 10):
        position.accept(position.next(), page(KEYS[start : start + 10]))
    return position


def test_the_next_page_is_asked_for_with_the_cursor_of_the_last() -> None:
    position = at(20)
    assert position.cursor == KEYS[19]
    assert position.next().query == StoreQuery(include_data=False, page_size=10, cursor=KEYS[19])
    assert position.next(3).query.page_size == 3
    assert not position.complete


def test_the_last_page_completes_the_query() -> None:
    position = at(20)
    assert hashes(position.accept(position.next(), page(KEYS[20:25], more=False))) == KEYS[20:25]
    assert position.complete
    assert position.cursor == KEYS[24]


def test_an_empty_last_page_leaves_the_cursor() -> None:
    position = at(20)
    assert position.accept(position.next(), page([], more=False)) == ()
    assert position.complete
    assert position.cursor == KEYS[19]


def test_detours_by_hash_go_back_further_and_further() -> None:
    """2, 4, 8, … entries; what is known of the way bounds them."""
    cursors = [course.query.cursor for course in at(20).detours()]
    assert cursors == [KEYS[18], KEYS[16], KEYS[12], KEYS[4]]
    assert len(list(at(3000).detours())) == 9


def test_what_a_detour_brings_again_is_left_out() -> None:
    """Also on the pages after its first."""
    position = at(20)
    course = list(position.detours())[3]  # from the fifth entry on
    assert position.accept(course, page(KEYS[5:15])) == ()
    assert hashes(position.accept(position.next(), page(KEYS[15:25]))) == KEYS[20:25]
    assert hashes(position.accept(position.next(), page(KEYS[25:35]))) == KEYS[25:35]


def test_a_detour_brings_again_only_what_lies_on_its_way() -> None:
    """More than that leads in circles."""
    position = at(20)
    course = next(position.detours())  # from the entry before the last on: one entry comes again
    with pytest.raises(StoreAnswerInvalid):
        position.accept(course, page(KEYS[18:28]))
    assert position.cursor == KEYS[19]
    assert hashes(position.accept(course, page(KEYS[19:29]))) == KEYS[20:29]
    with pytest.raises(StoreAnswerInvalid):
        position.accept(position.next(), page(KEYS[28:38]))


def test_without_a_page_there_is_no_detour() -> None:
    """Nothing is known of the place of a cursor that was given."""
    assert list(Position(BY_KEY).detours()) == []
    assert list(Position(StoreQuery(include_data=False, cursor=KEYS[0])).detours()) == []
    assert list(Position(StoreQuery(cursor=KEYS[0])).detours()) == []
    assert list(Position(StoreQuery(message_hashes=(KEYS[1],), cursor=KEYS[0])).detours()) == []


def test_a_lookup_is_complete_when_all_hashes_have_come() -> None:
    """Whatever cursor there is."""
    position = Position(StoreQuery(message_hashes=tuple(KEYS[:10]), include_data=False))
    position.accept(position.next(), page(KEYS[:5]))
    assert not position.complete
    (detour,) = position.detours()
    assert detour.query.message_hashes == tuple(KEYS[5:10])
    assert detour.query.cursor is None
    assert hashes(position.accept(detour, page(KEYS[5:10]))) == KEYS[5:10]
    assert position.complete


def test_what_is_remembered_is_bounded() -> None:
    position = at(3000)
    assert len(position._recent) == REMEMBERED
