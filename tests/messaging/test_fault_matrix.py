"""The fault matrix of the Messaging API (docs/fault-matrix.md).

Whatever fails, a message comes once to every live subscriber, or its sender has an error; never neither.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fault_cells import CELLS, Cell, play


@pytest.mark.virtual
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
async def test_a_message_comes_once_or_its_sender_has_an_error(cell: Cell, tmp_path: Path) -> None:
    await play(cell, tmp_path)


def test_cells_have_names_of_their_own() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)


def test_the_matrix_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "fault-matrix.md").read_text()
    assert [cell.name for cell in CELLS if f"| {cell.fault} |" not in text] == []
