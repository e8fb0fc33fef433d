"""A nursery for what lives as long as a `with` block, and tasks in it that end nothing but themselves."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_service_nursery() -> AsyncGenerator[trio.Nursery]:
    """A nursery whose tasks end with the block, and which passes a single error on as it is.

    A plain nursery wraps whatever the block raises in an `ExceptionGroup`; the user of an
    `async with open_node(…)` wrote no nursery and expects the error itself. Several errors stay a group.
    A group that the block raised, from a nursery of the user's, comes out as it is too: the nursery here
    makes a copy of it, and each of the nurseries of a node would add its lines to the traceback.
    """
    raised: BaseException | None = None
    single: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as error:
                raised = error
                raise
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        errors: list[BaseException] = list(group.exceptions)
        if len(errors) > 1:
            raise
        single = errors[0]
        if raised is not None and _same(single, raised):
            single = raised
    if single is not None:
        raise single  # out here it does not get the group as its context


def _same(error: BaseException, other: BaseException) -> bool:
    """Is it the same error, or a copy of a group of the same errors?"""
    if not (isinstance(error, BaseExceptionGroup) and isinstance(other, BaseExceptionGroup)):
        return error is other
    ours: list[BaseException] = list(error.exceptions)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    theirs: list[BaseException] = list(other.exceptions)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    return len(ours) == len(theirs) and all(map(_same, ours, theirs))


async def run_guarded(function: Callable[..., Awaitable[None]], *arguments: object) -> None:
    """Run `function`; what it raises is logged and goes no further.

    For a task about one peer: one that fails in a way that nobody thought of must not end the nursery that it
    shares with the others, and with it the node.
    """
    try:
        await function(*arguments)
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        logger.exception("task failed: task=%s error=%s", name, type(error).__name__)
