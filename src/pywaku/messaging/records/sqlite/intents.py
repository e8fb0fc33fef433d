"""Accepted sends: two small files beside the database that remember what is not in it yet.

To append to a file takes a microsecond or two, a commit twenty times that. What has been written outlives
the process however it ends, and is replayed when the records are opened again. Each send has a number, and
the database says up to which number it has taken them: so none is replayed that it had, however long the
file is kept. When one file is long enough the other takes over, and it is emptied once all in it is taken.

A file is `MAGIC`, the identity of the database, and entries: length and CRC-32 of a body (little-endian, 4
bytes each), and the body: number and creation time (8 bytes each), hash, lengths of request id and pubsub
topic (4 bytes each), both of them, and the message in protobuf.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import zlib
from collections.abc import Iterator, Set
from contextlib import suppress
from struct import Struct
from typing import Final

from pywaku.errors import InvalidInput, RecordError
from pywaku.messaging.record import MessageRecord, RequestId
from pywaku.messaging.records.port import require_send
from pywaku.messaging.records.sqlite.errors import clear_error, clear_errors
from pywaku.wire.message import decode_message, encode_message

_log = logging.getLogger(__name__)

MAGIC: Final = b"pywaku accepted sends 1\n"
SUFFIXES: Final = ("-accepted", "-accepted2")
IDENTITY_SIZE: Final = 16
FILE_BYTES: Final = 1 << 20
"""The other file takes over beyond this, once it is empty."""

_HEADER_SIZE: Final = len(MAGIC) + IDENTITY_SIZE
_frame: Final = Struct("<II")
_body: Final = Struct("<Qq32sII")


class _File:
    """One of the two files."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = 0
        self.last = 0
        """The number of the last send in it."""
        self._torn = False

    def restart(self, identity: bytes) -> None:
        """Empty it, for sends to the database of that identity."""
        os.ftruncate(self.handle, 0)
        self.size = 0
        self.append(MAGIC + identity)

    def cut(self) -> None:
        """Drop all entries."""
        os.ftruncate(self.handle, _HEADER_SIZE)
        self.size = _HEADER_SIZE

    def append(self, data: bytes) -> None:
        """Write all of the data, or (with an error) none."""
        if self._torn:
            os.ftruncate(self.handle, self.size)
            self._torn = False
        written = os.write(self.handle, data)
        if written != len(data):
            self._torn = True  # until it is cut off, nothing may be written behind it
            raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes written")
        self.size += written

    def read(self) -> bytes:
        """All of it."""
        return os.pread(self.handle, os.fstat(self.handle).st_size, 0)

    def remove(self) -> None:
        """Remove it, as well as that goes."""
        with suppress(OSError):
            os.unlink(self.path)

    def is_there(self) -> bool:
        """Whether the path still leads to this file."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self.handle), os.stat(self.path))
        return False


class Intents:
    """The two files, held by this process alone as long as it is open."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self._files = _lock(name, path)
        self._current, self._other = self._files
        self._last = 0
        self._waiting: dict[RequestId, int] = {}

    @property
    def waiting(self) -> int:
        """Accepted sends that are not in the database yet."""
        return len(self._waiting)

    def replay(self, identity: bytes, taken: int) -> list[tuple[int, MessageRecord]]:
        """What is to be added to the database, by number, as it has taken everything up to `taken`."""
        found: dict[int, MessageRecord] = {}
        for file in self._files:
            with clear_errors(self.name):
                data = file.read()
            found.update(_entries(data, identity, file.path))
        self._last = max([taken, *found])
        return sorted((number, record) for number, record in found.items() if number > taken)

    def restart(self, identity: bytes) -> None:
        """Start anew, with all of what was found in the database."""
        with clear_errors(self.name):
            for file in self._files:
                file.restart(identity)

    def accept(self, record: MessageRecord) -> None:
        """Write a send down."""
        request_id = require_send(record)
        if request_id in self._waiting:
            raise InvalidInput(f"the request {request_id} has been accepted before")
        number = self._last + 1
        entry = _encode(number, record, request_id)
        file = self._current
        try:
            if file.size >= FILE_BYTES and self._other.size == _HEADER_SIZE:
                file = self._other
            file.append(entry)
        except OSError as error:
            raise clear_error(self.name, error) from error
        if file is self._other:
            self._current, self._other = self._other, self._current
        self._last = file.last = number
        self._waiting[request_id] = number

    def taken_with(self, request_ids: Set[RequestId]) -> int:
        """Up to which number the database has taken them all once it has these."""
        for request_id, number in self._waiting.items():
            if request_id not in request_ids:
                return number - 1
        return self._last

    def forget(self, request_ids: Set[RequestId], taken: int) -> None:
        """These are in the database, and so is all up to the number `taken`."""
        for request_id in request_ids:
            self._waiting.pop(request_id, None)
        for file in self._files:
            if file.size >= FILE_BYTES and file.last <= taken:
                with suppress(OSError):  # it is cut the next time
                    file.cut()

    def close(self) -> None:
        """Let go of the files; they are removed where nothing waits in them."""
        for file in reversed(self._files):  # the first one is the lock
            if not self._waiting:
                file.remove()
            os.close(file.handle)

    def abandon(self) -> None:
        """Let go of the files and of what they hold; those that hold nothing are removed."""
        for file in reversed(self._files):
            if not file.read():
                file.remove()
            os.close(file.handle)


def _lock(name: str, path: str) -> tuple[_File, _File]:
    with clear_errors(name):
        while True:
            first = _File(path + SUFFIXES[0])
            try:
                fcntl.flock(first.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if first.is_there():
                    return first, _File(path + SUFFIXES[1])
            except BlockingIOError:
                os.close(first.handle)
                raise RecordError(
                    f"records {name}: they are in use by another process, or by another node of this one",
                    reason="in-use",
                ) from None
            except BaseException:
                os.close(first.handle)
                raise
            os.close(first.handle)  # whoever had it has removed it: lock the one that is there now


def _encode(number: int, record: MessageRecord, request_id: RequestId) -> bytes:
    request, pubsub = request_id.encode(), record.pubsub_topic.encode()
    head = _body.pack(number, record.created_ns, record.message_hash, len(request), len(pubsub))
    body = b"".join((head, request, pubsub, encode_message(record.message)))
    return _frame.pack(len(body), zlib.crc32(body)) + body


def _entries(data: bytes, identity: bytes, path: str) -> Iterator[tuple[int, MessageRecord]]:
    """The entries up to the first that is damaged; the last one may be torn."""
    if data[:_HEADER_SIZE] != MAGIC + identity:
        if len(data) > _HEADER_SIZE:
            _log.warning("accepted sends of other records passed over file=%s bytes=%d", path, len(data))
        return
    position = _HEADER_SIZE
    while position < len(data):
        start = position + _frame.size
        length, checksum = _frame.unpack_from(data, position) if start <= len(data) else (0, 0)
        body = data[start : start + length]
        if len(body) < length or length < _body.size or zlib.crc32(body) != checksum:
            _log.warning(
                "accepted sends end in a torn entry file=%s byte=%d left=%d",
                path,
                position,
                len(data) - position,
            )
            return
        yield _decode(body)
        position = start + length


def _decode(body: bytes) -> tuple[int, MessageRecord]:
    number, created_ns, message_hash, request_size, pubsub_size = _body.unpack_from(body)
    pubsub = _body.size + request_size
    message = pubsub + pubsub_size
    return number, MessageRecord(
        message_hash,
        body[pubsub:message].decode(),
        decode_message(body[message:]),
        sending=True,
        request_id=body[_body.size : pubsub].decode(),
        created_ns=created_ns,
    )
