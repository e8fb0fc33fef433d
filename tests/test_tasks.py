"""What leaves a block that has tasks of its own, and how it looks to the user who raised it."""

from __future__ import annotations

import traceback
from contextlib import AsyncExitStack

import pytest
import trio

from pywaku.tasks import open_service_nursery


async def _raise_in_blocks(depth: int, error: BaseException) -> None:
    if not depth:
        raise error
    async with open_service_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        await _raise_in_blocks(depth - 1, error)


async def test_an_error_comes_out_as_it_is() -> None:
    error = ValueError("of the user")
    with pytest.raises(ValueError, match="of the user") as caught:
        await _raise_in_blocks(5, error)
    assert caught.value is error


async def test_a_group_of_a_nursery_of_the_user_comes_out_as_it_is() -> None:
    group = BaseExceptionGroup("of the user", [KeyboardInterrupt(), ExceptionGroup("inner", [ValueError()])])
    with pytest.raises(BaseExceptionGroup) as caught:
        await _raise_in_blocks(5, group)
    assert caught.value is group


async def test_blocks_add_no_lines_to_the_traceback_of_a_group() -> None:
    lines: list[int] = []
    for depth in (1, 10):
        try:
            async with AsyncExitStack() as stack:
                for _ in range(depth):
                    await stack.enter_async_context(open_service_nursery())
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    raise ValueError
        except BaseExceptionGroup as group:
            lines.append(len(traceback.format_exception(group)))
    assert lines[0] == lines[1]


async def test_errors_of_tasks_and_of_the_block_stay_a_group() -> None:
    async def fail() -> None:
        raise KeyError

    async def fail_too() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError

    with pytest.raises(BaseExceptionGroup) as caught:
        async with open_service_nursery() as nursery:
            nursery.start_soon(fail_too)
            nursery.start_soon(fail)
            await trio.sleep_forever()
    assert {type(error) for error in caught.value.exceptions} == {KeyError, ValueError}
