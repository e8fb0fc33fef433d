"""The benchmark report: its form, which programs rely on, and what a ratio means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import LONG, MEASUREMENTS
from bench.report import compare, table, write_report

FIELDS = ["name", "ours", "theirs", "peer", "ratio", "goal", "unit"]


def test_a_report_is_a_list_of_measurements(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_report(
        path,
        [
            compare("fast", ours=300.0, theirs=200.0, peer="js", goal=1.2, unit="requests/s"),
            compare("alone", ours=1.0, unit="ms"),
        ],
    )

    entries = json.loads(path.read_text())
    assert [list(entry) for entry in entries] == [FIELDS, FIELDS]
    assert entries[0] == {
        "name": "fast",
        "ours": 300.0,
        "theirs": 200.0,
        "peer": "js",
        "ratio": 1.5,
        "goal": 1.2,
        "unit": "requests/s",
    }
    assert entries[1]["theirs"] is None
    assert entries[1]["ratio"] is None
    assert entries[1]["goal"] is None


def test_a_run_replaces_the_report_of_the_run_before(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_report(path, [compare("first", ours=1.0, unit="ms")])
    write_report(path, [compare("second", ours=1.0, unit="ms")])

    assert [entry["name"] for entry in json.loads(path.read_text())] == ["second"]


def test_a_ratio_above_one_means_that_ours_is_better() -> None:
    assert compare("speed", ours=30.0, theirs=20.0, peer="js", unit="MB/s").ratio == 1.5
    assert compare("memory", ours=20.0, theirs=30.0, peer="js", unit="KB", less_is_better=True).ratio == 1.5


def test_without_a_peer_there_is_no_ratio() -> None:
    row = compare("speed", ours=30.0, theirs=None, peer="js", goal=1.0, unit="MB/s")

    assert row.peer is None
    assert row.ratio is None
    assert row.goal == 1.0


def test_the_table_says_which_goals_are_met() -> None:
    text = table(
        [
            compare("good", ours=12_345.6, theirs=10_000.0, peer="js", goal=1.0, unit="messages/s"),
            compare("bad", ours=0.5, theirs=1.0, peer="js", goal=1.0, unit="messages/s"),
            compare("alone", ours=2.0, unit="ms"),
        ]
    )

    header, good, bad, alone = text.splitlines()
    assert header.startswith("name")
    assert "12,350" in good
    assert "met" in good
    assert "MISSED" in bad
    assert "met" not in alone
    assert "MISSED" not in alone


def test_every_measurement_has_a_name_of_its_own() -> None:
    for measurements in (MEASUREMENTS, LONG):
        names = [name for names in measurements for name in names]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "name",
    [
        "lightpush",
        "filter-fanout-100",
        "filter-delay-10-stalled",
        "filter-memory-distinct",
        "store-query",
        "archive-insert-sqlite",
        "archive-insert-postgres",
        "store-page-first-1m",
        "store-page-1000th-1m",
    ],
)
def test_service_protocols_and_archive_are_measured(name: str) -> None:
    assert any(name in names for names in MEASUREMENTS)


def test_ten_million_messages_are_measured_by_a_run_of_their_own() -> None:
    assert list(LONG) == [
        ("store-page-first-10k", "store-page-1000th-10k", "store-page-first-10m", "store-page-1000th-10m")
    ]
