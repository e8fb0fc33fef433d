"""How a store says no, and what it is called here when none of them says yes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from pywaku.errors import NetworkError
from pywaku.ids import PeerId


class StoreStatus(IntEnum):
    """Status codes of responses. The spec leaves them to the stores, beyond 2xx; these are nwaku's.

    nwaku answers 300 where its archive fails, also for a cursor that it does not know.
    """

    OK = 200
    BAD_RESPONSE = 300
    BAD_REQUEST = 400
    TOO_MANY_REQUESTS = 429
    INTERNAL_SERVER_ERROR = 500
    SERVICE_UNAVAILABLE = 503


class StoreQueryFailed(NetworkError):
    """A store answered a query with an error code."""

    def __init__(self, peer: PeerId, status_code: int, status_desc: str) -> None:
        super().__init__(f"{peer.short()} answered {status_code}: {status_desc}")
        self.peer = peer
        self.status_code = status_code
        self.status_desc = status_desc


class StoreAnswerInvalid(NetworkError):
    """A store answered with what cannot be the answer to the query: it is broken, or it lies."""


class StoresExhausted(NetworkError):
    """None of the stores answered (any more); says what was wrong with each.

    `cursor` is where the query can go on: `replace(query, cursor=error.cursor)`. It is None if there was no
    page yet.
    """

    def __init__(self, failures: Mapping[PeerId, Exception], cursor: bytes | None = None) -> None:
        trouble = "; ".join(f"{peer.short()}: {error}" for peer, error in failures.items())
        super().__init__(f"no store answered: {trouble or 'there was none to ask'}")
        self.failures = dict(failures)
        self.cursor = cursor
