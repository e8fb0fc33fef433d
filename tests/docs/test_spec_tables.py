"""Tables of requirements (`docs/*-spec.md`) name code and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*-spec.md"))
_NAME = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")


def _named(cell: str) -> list[tuple[Path, str]]:
    """The files that a cell names, each with the test, if one is named."""
    found = [(Path(path), test) for path, test in _NAME.findall(cell)]
    return [
        (ROOT / ("tests" if path.name.startswith("test_") else "src/pywaku") / path, test)
        for path, test in found
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_named_exists(page: Path) -> None:
    missing: list[str] = []
    for path, test in _named(page.read_text()):
        if not path.is_file():
            missing.append(f"{path.relative_to(ROOT)}")
        elif test and not re.search(rf"^(?:async )?def {test}\(", path.read_text(), re.M):
            missing.append(f"{path.relative_to(ROOT)}::{test}")
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_requirement_has_code_and_a_test(page: Path) -> None:
    rows = [line for line in page.read_text().splitlines() if re.match(r"\| (?!requirement|---)", line)]
    assert rows
    for row in rows:
        _, requirement, code, tests, _ = row.split("|")
        assert requirement.strip(), row
        assert _named(code), row
        assert all(test for _, test in _named(tests)), row
        assert _named(tests), row
