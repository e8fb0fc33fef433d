"""Archives by URL: what is opened, what is refused, and that passwords stay out of sight."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
import trio

from pywaku.archive import ArchiveQuery, RetentionPolicy, open_archive
from pywaku.archive.sqlite import SqliteArchive
from pywaku.errors import ArchiveError, InvalidInput
from tests.support.archives import START_NS, series


async def test_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_archive() as archive:
        assert archive.name == "sqlite://store.sqlite3"
    assert (tmp_path / "store.sqlite3").exists()
    async with open_archive(f"sqlite://{tmp_path}/with%20space.sqlite3") as archive:
        assert isinstance(archive, SqliteArchive)
    assert (tmp_path / "with space.sqlite3").exists()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store.sqlite3",
        "sqlite:store",
        "sqlite://",
        "mysql://u:hunter2@h/d",
        "postgres:hunter2",
        "sqlite://a%00b",
    ],
)
async def test_other_urls_are_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InvalidInput, match="sqlite://store") as caught:
        async with open_archive(url):
            pass
    assert "hunter2" not in str(caught.value)


async def test_an_unclear_policy_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="retention"):
        async with open_archive(f"sqlite://{tmp_path}/store.sqlite3", retention="for ever"):
            pass
    assert not list(tmp_path.iterdir())


async def test_the_policy_is_applied_when_the_archive_opens(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store.sqlite3"
    async with open_archive(url, retention="none") as archive:
        await archive.insert(series(100))
        assert (await archive.stats()).messages == 100
    async with open_archive(url, retention="capacity:10", clock=lambda: START_NS) as archive:
        while (await archive.stats()).messages != 10:
            await trio.sleep(0.001)
    for policy, kept in (("time:172800", 10), (RetentionPolicy(max_age_s=1), 0)):
        async with open_archive(url, retention=policy, clock=lambda: START_NS + 100_000_000_000) as archive:
            while (await archive.stats()).messages != kept:
                await trio.sleep(0.001)


async def test_an_error_in_the_block_is_passed_on_and_the_archive_closed(tmp_path: Path) -> None:
    held = None
    with pytest.raises(ZeroDivisionError):
        async with open_archive(f"sqlite://{tmp_path}/store.sqlite3") as archive:
            held = archive
            raise ZeroDivisionError
    assert held is not None
    with pytest.raises(ArchiveError, match="closed"):
        await held.query(ArchiveQuery())


async def test_without_psycopg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [name for name in sys.modules if name.startswith("pywaku.archive.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ArchiveError, match=r"pywaku\[postgres\]"):
        async with open_archive("postgres://user:hunter2@localhost/waku"):
            pass


@pytest.mark.parametrize(
    "url",
    [
        "postgres://waku:hunter2@127.0.0.1:1/waku",
        "postgres://waku@127.0.0.1:1/waku?password=hunter2",
        "postgres://waku:hunter2@127.0.0.1:port/waku",
        "postgres://waku:hunter2%@127.0.0.1/waku",
        "postgres://waku:hunter2@127.0.0.1:1/waku?nonsense=hunter2",
        "postgres://waku:hunter2%00@127.0.0.1:1/waku",
    ],
)
async def test_passwords_are_in_no_error_and_no_log(url: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("psycopg")
    caplog.set_level(logging.DEBUG)
    with pytest.raises((ArchiveError, InvalidInput)) as caught:
        async with open_archive(url):
            pass
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert "hunter2" not in caplog.text
