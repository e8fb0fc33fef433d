"""The simulated build: the conformance suite, and what only a simulation can do."""

from __future__ import annotations

import pytest

from tests.network.conformance import CONFORMANCE, Check
from tests.support.networks import simulated_factory


@pytest.mark.virtual
@pytest.mark.parametrize("check", CONFORMANCE, ids=lambda check: check.__name__)
async def test_conformance(check: Check) -> None:
    async with simulated_factory() as factory:
        await check(factory)
