"""The event journal: what happened, as rows in Parquet files (see docs/journal.md)."""
