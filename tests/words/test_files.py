"""Private files."""

from __future__ import annotations

import stat
from pathlib import Path

import trio

from pywaku.channels.sqlite_store import open_channel_store
from pywaku.files import create_private
from pywaku.messaging.records.sqlite import open_sqlite_records


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_file_is_for_its_owner_and_one_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("kept")
    old.chmod(0o644)
    create_private(new)
    create_private(old)
    create_private(tmp_path / "nowhere" / "file")
    assert (_mode(new), _mode(old), old.read_text()) == (0o600, 0o644, "kept")


def test_what_was_said_is_in_files_that_only_the_owner_reads(tmp_path: Path) -> None:
    async def main() -> None:
        await (await open_sqlite_records(tmp_path / "records")).close()
        await (await open_channel_store(tmp_path / "channels")).close()

    trio.run(main)
    assert {_mode(path) for path in tmp_path.iterdir()} == {0o600}
