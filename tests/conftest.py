"""How the tests run: async ones under trio, those marked `virtual` on a clock that jumps over every wait."""

from __future__ import annotations

import inspect
import os
from typing import Any

import hypothesis
import pytest
import trio
import trio.testing

REAL_TIME_LIMIT_S = 120

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("long", deadline=None, print_blob=True, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def _only_error(error: BaseException) -> BaseException:
    """What a test failed with, out of the groups that nurseries wrap around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        error = error.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return error  # pyright: ignore[reportUnknownVariableType]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function as a trio program of its own."""
    function = pyfuncitem.obj
    inner = function.hypothesis.inner_test if hasattr(function, "hypothesis") else function
    if not inspect.iscoroutinefunction(inner):
        return None
    virtual = pyfuncitem.get_closest_marker("virtual") is not None

    def run(**arguments: Any) -> None:
        async def main() -> None:
            if virtual:
                await inner(**arguments)
            else:
                with trio.fail_after(REAL_TIME_LIMIT_S):
                    await inner(**arguments)

        clock = trio.testing.MockClock(autojump_threshold=0) if virtual else None
        try:
            trio.run(main, clock=clock)
        except BaseExceptionGroup as group:
            raise _only_error(group) from None

    if inner is not function:
        function.hypothesis.inner_test = run
        run.__signature__ = inspect.signature(inner)
        run = function
    names = pyfuncitem._fixtureinfo.argnames
    run(**{name: pyfuncitem.funcargs[name] for name in names})
    return True
