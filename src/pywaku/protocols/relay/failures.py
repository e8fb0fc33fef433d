"""When a failure of the application's code, which may come with each message, is worth a line in the log."""

from __future__ import annotations

import logging


class Failures:
    """The failures of one function of the application: the first is logged in full, then each tenth power.

    So the tenth, hundredth and thousandth are, in short: a function that always fails does not fill the log.
    """

    __slots__ = ("_next", "count")

    def __init__(self) -> None:
        self.count = 0
        self._next = 1

    def log(self, logger: logging.Logger, what: str, error: Exception) -> None:
        """It has failed once more."""
        self.count += 1
        if self.count < self._next:
            return
        self._next *= 10
        first = self.count == 1
        logger.warning(
            "%s failed error=%s failures=%d",
            what,
            type(error).__name__,
            self.count,
            exc_info=error if first else None,
        )
