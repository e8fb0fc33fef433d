"""Files that hold what others on the machine should not read."""

from __future__ import annotations

import os
from pathlib import Path


def create_private(path: Path | str) -> None:
    """Create a file that only its owner may read and write; one that is there already is left as it is.

    What else can be wrong with it is for whoever opens it to say.
    """
    if str(path) == ":memory:":  # a database that is no file
        return
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return
