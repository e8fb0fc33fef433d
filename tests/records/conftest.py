"""Each test that takes `open_store` runs on every back end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from pywaku.messaging.records import RecordStore, open_record_store

OpenStore = Callable[..., AbstractAsyncContextManager[RecordStore]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file of a test is to be."""
    return tmp_path / "records.sqlite3"


@pytest.fixture(params=["sqlite", "memory"])
def open_store(request: pytest.FixtureRequest, path: Path) -> OpenStore:
    """Opens records that are new, and the same ones (unless in memory) each further time."""
    return partial(open_record_store, path if request.param == "sqlite" else None)
