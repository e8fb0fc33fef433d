"""Names of events that no spec names; docs/journal.md lists all, with the columns they fill."""

from __future__ import annotations

from typing import Final

JOURNAL_OPENED: Final = "journal:opened"
"""The first row of a boot."""
JOURNAL_DROPPED: Final = "journal:dropped"
"""Stands in the place of the last of `total` rows that were lost."""
JOURNAL_CLOSED: Final = "journal:closed"
"""The last row of a boot that ended in order."""

MESSAGE_REQUESTED: Final = "message:requested"
"""The application asked for a message to be sent."""
MESSAGE_ATTEMPT: Final = "message:attempt"
"""One attempt to send ended; with `error` where it failed."""
MESSAGE_CANCELLED: Final = "message:cancelled"
"""The application took a request back."""
RATE_CHARGED: Final = "rate-limit:charged"
"""A message was charged to an epoch of the rate limit; `done` of `total` are used."""
