"""Each test that takes `open_backend` runs on every back end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from pywaku.archive import Archive, RetentionPolicy, open_archive
from tests.support.postgres import PostgresServer, running_postgres, why_no_postgres

OpenBackend = Callable[[], AbstractAsyncContextManager[Archive]]


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server for all tests of the session."""
    reason = why_no_postgres()
    if reason is not None:
        pytest.skip(reason)
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of a place for an archive that is new."""
    return postgres_server.create_schema()


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def open_backend(request: pytest.FixtureRequest, tmp_path: Path) -> OpenBackend:
    """Opens an archive that is new, and the same one (unless in memory) each further time."""
    match request.param:
        case "sqlite":
            url = f"sqlite://{tmp_path}/store.sqlite3"
        case "memory":
            url = "sqlite://:memory:"
        case _:
            url = request.getfixturevalue("postgres_url")

    def opened() -> AbstractAsyncContextManager[Archive]:
        return open_archive(url, retention=RetentionPolicy())

    return opened
