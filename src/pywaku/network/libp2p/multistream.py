"""multistream-select 1.0.0: two sides agree on a protocol by naming it (multiformats/multistream-select).

Pure: bytes in, bytes out. A dialer proposes in one go with the header, so that agreement on its first
proposal takes one round trip, and none at all where its first data travels along (`lazy_open`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence
from typing import Final

from pywaku.errors import DecodeError, InvalidInput
from pywaku.wire import varint

HEADER: Final = "/multistream/1.0.0"
MAX_MESSAGE: Final = 1024
MAX_PROPOSALS: Final = 16

_NOT_AVAILABLE: Final = "na"
_LIST: Final = "ls"


def message(text: str) -> bytes:
    """A message: its length as a varint, the text, a newline."""
    body = text.encode() + b"\n"
    if len(body) > MAX_MESSAGE:
        raise InvalidInput(f"a protocol name of {len(body)} bytes is too long")
    return varint.encode(len(body)) + body


_HEADER_MESSAGE: Final = message(HEADER)
_NOT_AVAILABLE_MESSAGE: Final = message(_NOT_AVAILABLE)


def lazy_open(protocol: str) -> bytes:
    """What a dialer that knows one protocol sends first; its data may follow at once.

    The answers then come at the front of what is received: `Dialer([protocol], opened=True)` reads them.
    """
    return _HEADER_MESSAGE + message(protocol)


class Negotiation(ABC):
    """One side: what `take_output` returns goes to the peer, what comes from it goes into `receive`."""

    __slots__ = ("_greeted", "_incoming", "_outgoing", "agreed", "refused")

    def __init__(self, outgoing: bytes) -> None:
        self.agreed: str | None = None
        """The protocol agreed on."""
        self.refused = False
        """Has the peer refused all that was proposed?"""
        self._incoming = b""  # at most one message, before the agreement
        self._outgoing = outgoing
        self._greeted = False

    @property
    def over(self) -> bool:
        """Is there an agreement, or will there be none?"""
        return self.agreed is not None or self.refused

    @property
    def leftover(self) -> bytes:
        """What came after the agreement."""
        return self._incoming if self.agreed is not None else b""

    def take_output(self) -> bytes:
        """The bytes to be sent since the last call."""
        output, self._outgoing = self._outgoing, b""
        return output

    def receive(self, data: bytes) -> str | None:
        """Take in bytes from the peer; returns the protocol once there is an agreement.

        Raises `DecodeError`, which is final, when the peer does not speak multistream-select.
        """
        data = self._incoming + data if self._incoming else data
        position = 0
        if not self._greeted and data.startswith(_HEADER_MESSAGE):
            self._greeted = True
            position = len(_HEADER_MESSAGE)
        while not self.over:
            found = _next_message(data, position)
            if found is None:
                break
            text, position = found
            if self._greeted:
                self._take(text)
            elif text == HEADER:
                self._greeted = True
            else:
                raise DecodeError("the peer does not speak multistream-select 1.0.0")
        self._incoming = data[position:]
        return self.agreed

    @abstractmethod
    def _take(self, text: str) -> None:
        """Do what a message of the peer's demands."""


class Dialer(Negotiation):
    """The side that proposes."""

    __slots__ = ("_proposals",)

    def __init__(self, protocols: Sequence[str], *, opened: bool = False) -> None:
        """Proposes `protocols` in this order. `opened`: `lazy_open` of the first was sent already."""
        if not 0 < len(protocols) <= MAX_PROPOSALS:
            raise InvalidInput(f"a dialer proposes 1 to {MAX_PROPOSALS} protocols, not {len(protocols)}")
        super().__init__(b"" if opened else lazy_open(protocols[0]))
        self._proposals = tuple(protocols)

    def _take(self, text: str) -> None:
        if text == self._proposals[0]:
            self.agreed = text
        elif text != _NOT_AVAILABLE:
            raise DecodeError("the peer agreed to a protocol that was not proposed")
        elif len(self._proposals) == 1:
            self.refused = True
        else:
            self._proposals = self._proposals[1:]
            self._outgoing += message(self._proposals[0])


class Listener(Negotiation):
    """The side that answers."""

    __slots__ = ("_names", "_proposals", "_supported")

    def __init__(
        self, supported: Container[str] | Callable[[str], bool], *, names: Sequence[str] = ()
    ) -> None:
        """Agrees to what `supported` holds or says yes to. A peer that asks (`ls`) is told `names`."""
        super().__init__(_HEADER_MESSAGE)
        self._supported = supported if callable(supported) else supported.__contains__
        self._names = names
        self._proposals = 0

    def _take(self, text: str) -> None:
        self._proposals += 1
        if self._proposals > MAX_PROPOSALS:
            raise DecodeError(f"the peer proposed more than {MAX_PROPOSALS} protocols")
        if text == _LIST:
            # The list is a message that holds a message for each name.
            body = b"".join(message(name) for name in self._names) + b"\n"
            self._outgoing += varint.encode(len(body)) + body
        elif self._supported(text):
            self._outgoing += message(text)
            self.agreed = text
        else:
            self._outgoing += _NOT_AVAILABLE_MESSAGE


def _next_message(data: bytes, position: int) -> tuple[str, int] | None:
    """The message at `position` and where it ends; None while it is incomplete."""
    found = varint.decode(data, position)
    if found is None:
        return None
    size, start = found
    if not 0 < size <= MAX_MESSAGE:
        raise DecodeError(f"a multistream message has 1 to {MAX_MESSAGE} bytes, not {size}")
    end = start + size
    if len(data) < end:
        return None
    if data[end - 1] != 0x0A:
        raise DecodeError("a multistream message does not end its line")
    try:
        return data[start : end - 1].decode(), end
    except UnicodeDecodeError:
        raise DecodeError("a protocol name is not UTF-8") from None
