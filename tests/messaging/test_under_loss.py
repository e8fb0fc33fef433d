"""Many messages through a lossy network in which a service node fails every minute: each comes once."""

from __future__ import annotations

import pytest

from pywaku.network.simulated import LinkProfile
from pywaku.wire import filter as filter_wire
from pywaku.wire import lightpush, relay, store
from tests.support.sending_rounds import Outcome, run_rounds

LOSSY = LinkProfile(loss=0.2)
"""A fifth of all packets are lost, and sent again as TCP does."""
SWALLOWING = LinkProfile(
    loss=0.2,
    write_loss=0.02,
    lossy_protocols=frozenset(
        {
            filter_wire.PUSH_PROTOCOL,
            filter_wire.SUBSCRIBE_PROTOCOL,
            lightpush.PROTOCOL,
            store.PROTOCOL,
            relay.PROTOCOL,
        }
    ),
)
"""Besides, two of a hundred requests, answers, pushes and RPCs vanish without a trace."""


def hold(outcome: Outcome) -> None:
    """Nothing lost, nothing doubled, every record final; the figures are printed."""
    print(outcome)
    assert outcome.crashes > 0
    assert (outcome.lost, outcome.duplicates, outcome.unfinished) == (0, 0, 0), outcome


@pytest.mark.virtual
@pytest.mark.parametrize("seed", [1, 2])
async def test_hundreds_of_messages_at_20_percent_loss_while_service_nodes_fail(seed: int) -> None:
    outcome = await run_rounds(seed=seed, messages=400, rate_per_s=5, link=LOSSY)
    hold(outcome)
    assert (outcome.unheard, outcome.errors.total()) == (0, 0), outcome


@pytest.mark.virtual
async def test_hundreds_of_messages_of_which_some_vanish_without_a_trace() -> None:
    hold(await run_rounds(seed=3, messages=300, rate_per_s=4, link=SWALLOWING))


@pytest.mark.long
@pytest.mark.virtual
@pytest.mark.parametrize("seed", [1])
async def test_10_000_messages_at_20_percent_loss_while_a_service_node_fails_every_minute(seed: int) -> None:
    outcome = await run_rounds(seed=seed, messages=10_000, rate_per_s=15, link=LOSSY)
    hold(outcome)
    assert outcome.crashes >= 10
    assert (outcome.unheard, outcome.errors.total()) == (0, 0), outcome


@pytest.mark.long
@pytest.mark.virtual
async def test_2_000_messages_of_which_some_vanish_without_a_trace() -> None:
    hold(await run_rounds(seed=4, messages=2_000, rate_per_s=5, link=SWALLOWING))
