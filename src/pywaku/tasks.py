"""A nursery for what lives as long as a `with` block."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_service_nursery() -> AsyncGenerator[trio.Nursery]:
    """A nursery whose tasks end with the block, and which passes a single error on as it is.

    A plain nursery wraps whatever the block raises in an `ExceptionGroup`; the user of an
    `async with open_node(…)` wrote no nursery and expects the error itself. Several errors stay a group.
    """
    single: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        errors: list[BaseException] = list(group.exceptions)
        if len(errors) > 1:
            raise
        single = errors[0]
    if single is not None:
        raise single  # out here it does not get the group as its context
