"""Multiaddrs: self-describing network addresses, as text and as bytes (multiformats/multiaddr).

Both directions are strict: what decodes or parses has exactly one binary form, and that form is what
`encode` returns.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self
from urllib.parse import quote, unquote_to_bytes

from pywaku.errors import DecodeError, InvalidInput
from pywaku.ids import PeerId, base58_decode
from pywaku.wire import varint

Component = tuple[str, str | None]

_VARIABLE: Final = -1
_LONGEST: Final = 1024  # bytes; a circuit address over a long domain name takes less than half of it
_BROKEN_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_LIBP2P_KEY: Final = b"\x01\x72"  # CID version 1, multicodec libp2p-key


class _Protocol(NamedTuple):
    name: str
    code: int
    size: int = 0  # bytes of the value
    to_bytes: Callable[[str], bytes] | None = None  # both raise ValueError
    to_text: Callable[[bytes], str] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Multiaddr:
    """A network address. Made by `parse` or `decode`; equal where the bytes are."""

    _encoded: bytes
    components: tuple[Component, ...] = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """An address from its text (`/ip4/127.0.0.1/tcp/60000`); raises `InvalidInput`."""
        try:
            address = cls._of(_split(text))
        except ValueError as error:
            raise InvalidInput(f"{text[:_LONGEST]!r} is not a multiaddr: {error}") from None
        if len(address._encoded) > _LONGEST:
            raise InvalidInput(f"a multiaddr of {len(address._encoded)} bytes is too long")
        return address

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """An address from its binary form; raises `DecodeError`."""
        if len(data) > _LONGEST:
            raise DecodeError(f"a multiaddr of {len(data)} bytes is too long")
        try:
            address = cls._of(_read(data))
        except ValueError as error:
            raise DecodeError(f"not a multiaddr: {error}") from None
        if address._encoded != data:
            raise DecodeError("not a multiaddr in its canonical form")
        return address

    @classmethod
    def _of(cls, components: list[Component]) -> Self:
        """Raises `ValueError`. The values may be in any accepted notation; what is kept is canonical."""
        if not components:
            raise ValueError("it is empty")
        encoded: list[bytes] = []
        canonical: list[Component] = []
        for name, value in components:
            protocol = _BY_NAME[name]
            encoded.append(varint.encode(protocol.code))
            if protocol.to_bytes is None or protocol.to_text is None or value is None:
                canonical.append((protocol.name, None))
                continue
            raw = protocol.to_bytes(value)
            if protocol.size == _VARIABLE:
                encoded.append(varint.encode(len(raw)))
            encoded.append(raw)
            canonical.append((protocol.name, protocol.to_text(raw)))
        return cls(b"".join(encoded), tuple(canonical))

    def encode(self) -> bytes:
        """The address in its binary form."""
        return self._encoded

    def get(self, name: str) -> str | None:
        """The value of the first component of that protocol; None where there is none."""
        return next((value for known, value in self.components if known == name), None)

    def has(self, name: str) -> bool:
        """Is there a component of that protocol?"""
        return any(known == name for known, _ in self.components)

    @property
    def peer_id(self) -> PeerId | None:
        """The peer at the end of the address: the last `/p2p/`, unless it names the relay of a circuit."""
        for name, value in reversed(self.components):
            if name == "p2p" and value is not None:
                return PeerId.from_text(value)
            if name == "p2p-circuit":
                return None
        return None

    def with_peer(self, peer: PeerId) -> Multiaddr:
        """The address, ending in `/p2p/` and this peer."""
        return Multiaddr._of([*self._without_peer(), ("p2p", str(peer))])

    def without_peer(self) -> Multiaddr:
        """The address without the `/p2p/` at its end; an address that is nothing else stays as it is."""
        components = self._without_peer()
        return Multiaddr._of(components) if components else self

    def _without_peer(self) -> list[Component]:
        last = len(self.components) - (self.components[-1][0] == "p2p")
        return list(self.components[:last])

    def __str__(self) -> str:
        parts: list[str] = []
        for name, value in self.components:
            parts.append(name)
            if value is not None:
                parts.append(value)
        return "/" + "/".join(parts)

    def __repr__(self) -> str:
        return f"Multiaddr({str(self)!r})"


def _split(text: str) -> list[Component]:
    """Text as components; raises `ValueError`."""
    if not text.startswith("/"):
        raise ValueError("it does not start with '/'")
    words = text.rstrip("/").split("/")[1:]
    components: list[Component] = []
    position = 0
    while position < len(words):
        protocol = _BY_NAME.get(words[position])
        if protocol is None:
            raise ValueError(f"{words[position]!r} is not a protocol we know")
        position += 1
        if protocol.size == 0:
            components.append((protocol.name, None))
        elif position == len(words):
            raise ValueError(f"{protocol.name} lacks its value")
        else:
            components.append((protocol.name, words[position]))
            position += 1
    return components


def _read(data: bytes) -> list[Component]:
    """Bytes as components; raises `ValueError` or `DecodeError`."""
    components: list[Component] = []
    position = 0
    while position < len(data):
        code, position = _varint(data, position)
        protocol = _BY_CODE.get(code)
        if protocol is None:
            raise ValueError(f"there is no protocol {code} that we know")
        if protocol.to_text is None:
            components.append((protocol.name, None))
            continue
        size = protocol.size
        if size == _VARIABLE:
            size, position = _varint(data, position)
        raw = data[position : position + size]
        if len(raw) != size:
            raise ValueError(f"the value of {protocol.name} is cut short")
        components.append((protocol.name, protocol.to_text(raw)))
        position += size
    return components


def _varint(data: bytes, position: int) -> tuple[int, int]:
    found = varint.decode(data, position)
    if found is None:
        raise ValueError("it is cut short")
    return found


def _ip4_to_bytes(text: str) -> bytes:
    return ipaddress.IPv4Address(text).packed


def _ip4_to_text(raw: bytes) -> str:
    return str(ipaddress.IPv4Address(raw))


def _ip6_to_bytes(text: str) -> bytes:
    if "%" in text:
        raise ValueError("the zone of an IPv6 address is a component of its own, ip6zone")
    return ipaddress.IPv6Address(text).packed


def _ip6_to_text(raw: bytes) -> str:
    address = ipaddress.IPv6Address(raw)
    mapped = address.ipv4_mapped
    # Python 3.13 writes these so; earlier ones in hexadecimal.
    return f"::ffff:{mapped}" if mapped is not None else str(address)


def _number_to_bytes(text: str, size: int) -> bytes:
    if not (text.isascii() and text.isdigit() and len(text) <= 20) or (text[0] == "0" and text != "0"):
        raise ValueError(f"{text!r} is not a number")
    number = int(text)
    if number >= 1 << (8 * size):
        raise ValueError(f"{text} is too large")
    return number.to_bytes(size)


def _port_to_bytes(text: str) -> bytes:
    return _number_to_bytes(text, 2)


def _memory_to_bytes(text: str) -> bytes:
    return _number_to_bytes(text, 8)


def _number_to_text(raw: bytes) -> str:
    return str(int.from_bytes(raw))


def _name_to_bytes(text: str) -> bytes:
    if not text or "/" in text or "\0" in text:
        raise ValueError(f"{text!r} is not a name")
    return text.encode()


def _name_to_text(raw: bytes) -> str:
    text = raw.decode()
    _name_to_bytes(text)
    return text


def _path_to_bytes(text: str) -> bytes:
    """A path with its slashes percent-encoded, so that it is one segment (multiaddr protocols, unix)."""
    if not text or not text.isascii() or _BROKEN_ESCAPE.search(text):
        raise ValueError(f"{text!r} is not a percent-encoded path")
    return unquote_to_bytes(text)


def _path_to_text(raw: bytes) -> str:
    if not raw:
        raise ValueError("a path is empty")
    return quote(raw, safe="!$&'()*+,;=:@")  # what else a URI path segment may hold


def _peer_to_bytes(text: str) -> bytes:
    """A peer id in base58, or as a CID in base32 or base36 (libp2p peer ids, "String representation")."""
    if text[:1] == "b":
        cid = _base32_decode(text[1:])
    elif text[:1] == "k":
        if len(text) > 128 or not text.isalnum() or not text.isascii():
            raise ValueError(f"{text[:128]!r} is not base36 text")
        number = int(text[1:], 36)
        cid = number.to_bytes((number.bit_length() + 7) // 8)
    else:
        return PeerId.from_text(text)
    if not cid.startswith(_LIBP2P_KEY):
        raise ValueError(f"{text!r} is a CID of something else than a peer")
    return PeerId.from_bytes(cid[2:])


def _peer_to_text(raw: bytes) -> str:
    return str(PeerId.from_bytes(raw))


def _base32_decode(text: str) -> bytes:
    return base64.b32decode(text.upper() + "=" * (-len(text) % 8))


def _certhash_to_bytes(text: str) -> bytes:
    """A multihash in one of the usual multibase notations."""
    prefix, body = text[:1], text[1:]
    if prefix == "u":
        raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    elif prefix == "b":
        raw = _base32_decode(body)
    elif prefix == "f":
        raw = bytes.fromhex(body)
    elif prefix == "z":
        raw = base58_decode(body)
    else:
        raise ValueError(f"{text!r} is not multibase text that we know")
    _certhash_to_text(raw)
    return raw


def _certhash_to_text(raw: bytes) -> str:
    _, position = _varint(raw, 0)
    size, position = _varint(raw, position)
    if size != len(raw) - position:
        raise ValueError("a certhash is a multihash")
    return "u" + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _onion3_to_bytes(text: str) -> bytes:
    host, _, port = text.partition(":")
    raw = _base32_decode(host)
    if len(raw) != 35 or port == "0":
        raise ValueError(f"{text!r} is not 56 characters of base32, a colon and a port")
    return raw + _port_to_bytes(port)


def _onion3_to_text(raw: bytes) -> str:
    text = f"{base64.b32encode(raw[:35]).decode().lower()}:{_number_to_text(raw[35:])}"
    _onion3_to_bytes(text)
    return text


_PROTOCOLS: Final = (
    _Protocol("ip4", 4, 4, _ip4_to_bytes, _ip4_to_text),
    _Protocol("tcp", 6, 2, _port_to_bytes, _number_to_text),
    _Protocol("ip6", 41, 16, _ip6_to_bytes, _ip6_to_text),
    _Protocol("ip6zone", 42, _VARIABLE, _name_to_bytes, _name_to_text),
    _Protocol("dns", 53, _VARIABLE, _name_to_bytes, _name_to_text),
    _Protocol("dns4", 54, _VARIABLE, _name_to_bytes, _name_to_text),
    _Protocol("dns6", 55, _VARIABLE, _name_to_bytes, _name_to_text),
    _Protocol("dnsaddr", 56, _VARIABLE, _name_to_bytes, _name_to_text),
    _Protocol("udp", 273, 2, _port_to_bytes, _number_to_text),
    _Protocol("webrtc-direct", 280),
    _Protocol("webrtc", 281),
    _Protocol("p2p-circuit", 290),
    _Protocol("unix", 400, _VARIABLE, _path_to_bytes, _path_to_text),
    _Protocol("p2p", 421, _VARIABLE, _peer_to_bytes, _peer_to_text),
    _Protocol("https", 443),
    _Protocol("onion3", 445, 37, _onion3_to_bytes, _onion3_to_text),
    _Protocol("tls", 448),
    _Protocol("sni", 449, _VARIABLE, _name_to_bytes, _name_to_text),
    _Protocol("quic", 460),
    _Protocol("quic-v1", 461),
    _Protocol("webtransport", 465),
    _Protocol("certhash", 466, _VARIABLE, _certhash_to_bytes, _certhash_to_text),
    _Protocol("ws", 477),
    _Protocol("wss", 478),
    _Protocol("http", 480),
    _Protocol("memory", 777, 8, _memory_to_bytes, _number_to_text),
)
_BY_CODE: Final = {protocol.code: protocol for protocol in _PROTOCOLS}
_BY_NAME: Final = {protocol.name: protocol for protocol in _PROTOCOLS}
_BY_NAME["ipfs"] = _BY_NAME["p2p"]  # its old name
