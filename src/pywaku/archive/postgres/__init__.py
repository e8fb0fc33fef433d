"""The archive in PostgreSQL. Needs the package psycopg, so it is imported only when it is asked for."""

from pywaku.archive.postgres.archive import PostgresArchive, open_postgres

__all__ = ["PostgresArchive", "open_postgres"]
