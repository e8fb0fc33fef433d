"""Runs that repeat exactly: virtual time, and a scheduler that has no chance of its own.

trio runs the tasks that are ready together in a random order, on purpose, and offers no public way to seed
it. It does have a switch for hypothesis, which makes a batch of tasks sorted by age and then shuffled by one
generator, and this is what we use, in this one place. Together with a fresh `MockClock` (which starts at 0)
and seeds for everything else, two runs of one function do the same things in the same order, in any process.
What still differs between processes is the order of sets, and of dicts made from sets (`PYTHONHASHSEED`):
code that is to repeat does not let it decide anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
import trio.testing
from trio._core import _run as scheduler

Result = TypeVar("Result")

_SWITCH = "_ALLOW_DETERMINISTIC_SCHEDULING"


def run_replayable(function: Callable[[], Awaitable[Result]], *, seed: int) -> Result:
    """Run an async function to its end on virtual time, in a way that depends on `seed` and nothing else."""
    before = getattr(scheduler, _SWITCH)
    state = scheduler._r.getstate()
    setattr(scheduler, _SWITCH, True)
    scheduler._r.seed(seed)
    try:
        return trio.run(function, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        setattr(scheduler, _SWITCH, before)
        scheduler._r.setstate(state)
