"""identify 1.0.0: what a peer says of itself (libp2p identify, "The Identify Message")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pywaku.errors import DecodeError
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.protobuf_lite import bytes_field, read_fields, text_field, text_of

PROTOCOL: Final = "/ipfs/id/1.0.0"
PUSH_PROTOCOL: Final = "/ipfs/id/push/1.0.0"

MAX_SIZE: Final = 64 * 1024
"""Bytes of a message. Others send less than 8 KiB; that bounds the work that one message can make."""
MAX_ADDRESSES: Final = 64
MAX_PROTOCOLS: Final = 256
MAX_TEXT: Final = 256


@dataclass(frozen=True, slots=True)
class Identify:
    """What a peer says of itself; what it does not say is empty.

    `public_key` is the key as it was encoded (`PublicKey.decode` reads it): it proves nothing, as the secure
    channel has proven the peer already, so a key of an unknown kind does not spoil the rest.
    """

    protocol_version: str = ""
    agent_version: str = ""
    public_key: bytes = b""
    listen_addresses: tuple[Multiaddr, ...] = ()
    observed_address: Multiaddr | None = None
    protocols: tuple[str, ...] = ()
    signed_peer_record: bytes = b""

    def updated(self, push: Identify) -> Identify:
        """This, with what a later message says anew: a push may hold only what has changed."""
        return Identify(
            protocol_version=push.protocol_version or self.protocol_version,
            agent_version=push.agent_version or self.agent_version,
            public_key=push.public_key or self.public_key,
            listen_addresses=push.listen_addresses or self.listen_addresses,
            observed_address=push.observed_address or self.observed_address,
            protocols=push.protocols or self.protocols,
            signed_peer_record=push.signed_peer_record or self.signed_peer_record,
        )


def encode_identify(message: Identify) -> bytes:
    """The message as protobuf."""
    parts: list[bytes] = []
    if message.public_key:
        parts.append(bytes_field(1, message.public_key))
    parts += (bytes_field(2, address.encode()) for address in message.listen_addresses)
    parts += (text_field(3, protocol) for protocol in message.protocols)
    if message.observed_address is not None:
        parts.append(bytes_field(4, message.observed_address.encode()))
    if message.protocol_version:
        parts.append(text_field(5, message.protocol_version))
    if message.agent_version:
        parts.append(text_field(6, message.agent_version))
    if message.signed_peer_record:
        parts.append(bytes_field(8, message.signed_peer_record))
    return b"".join(parts)


def decode_identify(data: bytes) -> Identify:
    """The message from protobuf; raises `DecodeError`.

    Addresses that are not understood, names that are too long, and what is beyond the maxima is left out:
    a peer with many addresses, or with new kinds of them, is still worth talking to.
    """
    if len(data) > MAX_SIZE:
        raise DecodeError(f"an identify message of {len(data)} bytes is too long")
    protocol_version = agent_version = ""
    public_key = record = b""
    observed: Multiaddr | None = None
    addresses: dict[Multiaddr, None] = {}
    protocols: dict[str, None] = {}
    for number, value in read_fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            public_key = value
        elif number == 2:
            address = _address(value)
            if address is not None and len(addresses) < MAX_ADDRESSES:
                addresses[address] = None
        elif number == 3:
            if 0 < len(value) <= MAX_TEXT and len(protocols) < MAX_PROTOCOLS:
                protocols[text_of(value)] = None
        elif number == 4:
            observed = _address(value)
        elif number == 5:
            protocol_version = text_of(value)[:MAX_TEXT]
        elif number == 6:
            agent_version = text_of(value)[:MAX_TEXT]
        elif number == 8:
            record = value
    return Identify(
        protocol_version=protocol_version,
        agent_version=agent_version,
        public_key=public_key,
        listen_addresses=tuple(addresses),
        observed_address=observed,
        protocols=tuple(protocols),
        signed_peer_record=record,
    )


def _address(value: bytes) -> Multiaddr | None:
    try:
        return Multiaddr.decode(value)
    except DecodeError:
        return None
