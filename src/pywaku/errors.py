"""Every error that pywaku raises, in one tree: `WakuError` catches them all.

Network trouble reaches a caller only where the caller asked for one peer, one stream, one connection
(`NetworkError`); bytes from outside surface as `DecodeError` and as nothing else.
"""

from __future__ import annotations


class WakuError(Exception):
    """The root of all errors raised by pywaku."""


class InvalidInput(WakuError, ValueError):
    """An argument, option or file that cannot be what was meant; says which and what would be right."""


class InvalidTopic(InvalidInput):
    """A content topic or pubsub topic that is not of a form the specs define."""


class UnsupportedTopic(InvalidTopic):
    """A pubsub topic that the node does not operate on (another cluster or shard)."""


class DecodeError(WakuError):
    """Bytes from outside that are not what they should be."""


class DecryptionFailed(DecodeError):
    """A payload that cannot be decrypted with the keys there are, or is not signed by whom it should be.

    `reason` is a word for counters: authentication (the key is another one, or bytes were changed), format,
    signature, signer or hook; docs/encryption.md explains each.
    """

    def __init__(self, message: str, *, reason: str = "authentication") -> None:
        super().__init__(message)
        self.reason = reason


class NetworkError(WakuError):
    """A peer, a connection or a stream did not do what was asked of it."""


class DialError(NetworkError):
    """No connection to the peer could be made; says which address failed and how."""


class ListenError(NetworkError):
    """An address could not be listened on (in use, not ours, not allowed)."""


class NotConnected(NetworkError):
    """The peer is not connected."""


class ProtocolNotSupported(NetworkError):
    """The peer speaks none of the protocols asked for."""


class StreamClosed(NetworkError):
    """The stream is closed on the side that was to be used; nothing was sent."""


class StreamReset(NetworkError):
    """The stream ended without a proper close: by the peer, by us, or with its connection."""


class RequestTimeout(NetworkError):
    """The peer did not answer a request in time."""


class LimitExceeded(NetworkError):
    """A bound of ours was reached (streams, connections, buffered bytes); says which."""


class NodeClosed(WakuError):
    """The node, or the part of it that was asked, has been closed."""


class ArchiveError(WakuError):
    """The archive could not do what was asked of it; says which one (never with its password) and why.

    `reason` is a word for counters, such as disk-full, locked, read-only, corrupt or connection;
    docs/archive.md explains each.
    """

    def __init__(self, message: str, *, reason: str = "other") -> None:
        super().__init__(message)
        self.reason = reason


class CursorNotFound(ArchiveError):
    """The archive keeps no message of the hash from which a query is to go on (it may have aged out)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="cursor")


class RecordError(WakuError):
    """The records of messages could not be kept or read; says where they are kept, and why.

    `reason` is a word for counters, such as disk-full, locked, read-only, corrupt or in-use; docs/records.md
    explains each.
    """

    def __init__(self, message: str, *, reason: str = "other") -> None:
        super().__init__(message)
        self.reason = reason
