"""pyarrow, where it is installed: it is optional, large, slow to import, and has no types."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pywaku.errors import InvalidInput

Arrow = Any
"""The module `pyarrow`."""
Table = Any
"""A `pyarrow.Table`."""


def load_arrow() -> Arrow:
    """The module, with `parquet` loaded; raises `InvalidInput` that says how to install it."""
    try:
        arrow = import_module("pyarrow")
        import_module("pyarrow.parquet")
    except ImportError as error:
        raise InvalidInput("a journal needs the package pyarrow: pip install 'pywaku[journal]'") from error
    return arrow
