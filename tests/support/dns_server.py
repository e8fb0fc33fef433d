"""A DNS server for tests: TXT records from a dictionary, over UDP and TCP on loopback.

And the trees of EIP-1459 to serve with it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from pywaku.keys import PrivateKey
from pywaku.peers.enrtree import Branch, Link, Root, hash_of
from pywaku.wire.enr import Enr

_TXT: Final = 16
_OPT: Final = 41
_IN: Final = 1
_HEADER: Final = 12
_CLASSIC_UDP_SIZE: Final = 512
_NO_SUCH_NAME: Final = 3


def make_tree(
    key: PrivateKey,
    domain: str,
    records: Iterable[Enr | str] = (),
    links: Iterable[Link | str] = (),
    *,
    seq: int = 1,
    fan_out: int = 4,
) -> dict[str, str]:
    """The texts of a node list, by name: signed with `key`, to be found at `domain`."""
    zone: dict[str, str] = {}

    def add(text: str) -> str:
        name = hash_of(text)
        zone[f"{name}.{domain}"] = text
        return name

    def subtree(leaves: Iterable[Enr | Link | str]) -> str:
        names = [add(leaf.text if isinstance(leaf, Enr) else str(leaf)) for leaf in leaves]
        while len(names) > fan_out:
            names = [
                add(str(Branch(tuple(names[at : at + fan_out])))) for at in range(0, len(names), fan_out)
            ]
        return add(str(Branch(tuple(names))))

    zone[domain] = str(Root.sign(key, records=subtree(records), links=subtree(links), seq=seq))
    return zone


def link_to(key: PrivateKey, domain: str) -> Link:
    """The link to a list."""
    return Link(key.public, domain)


class DnsServer:
    """Answers from `zone` (names in lower case). What it does wrong can be set."""

    def __init__(self, zone: Mapping[str, str | Sequence[str]]) -> None:
        self.zone = {name.lower(): text for name, text in zone.items()}
        self.asked: list[str] = []
        self.asked_by_tcp: list[str] = []
        self.silent = 0
        """So many UDP questions are left unanswered."""
        self.garbage_first = False
        """Before each answer come packets that are none: of another question, cut short, random."""
        self.port = 0

    @property
    def address(self) -> str:
        """Where it is, as name servers are written."""
        return f"127.0.0.1:{self.port}"

    async def serve_udp(self, socket: trio.socket.SocketType) -> None:
        """Answer for ever."""
        rng = random.Random(1)
        while True:
            data, peer = await socket.recvfrom(4096)
            name = self._name(data)
            self.asked.append(name)
            if self.silent:
                self.silent -= 1
                continue
            answer = self.answer(data)
            if self.garbage_first:
                for junk in (rng.randbytes(30), answer[:7], bytes([data[0] ^ 1]) + answer[1:], b""):
                    await socket.sendto(junk, peer)
            if len(answer) > self._room(data):
                end = self._question_end(data)
                answer = (
                    answer[:2] + bytes([answer[2] | 2]) + answer[3:4] + b"\0\1" + bytes(6) + data[_HEADER:end]
                )
            await socket.sendto(answer, peer)

    async def serve_tcp(self, stream: trio.SocketStream) -> None:
        """Answer one connection."""
        data = b""
        async for part in stream:
            data += part
            while len(data) > 2 and len(data) >= 2 + int.from_bytes(data[:2]):
                size = int.from_bytes(data[:2])
                question, data = data[2 : 2 + size], data[2 + size :]
                self.asked_by_tcp.append(self._name(question))
                answer = self.answer(question)
                await stream.send_all(len(answer).to_bytes(2) + answer)

    def answer(self, question: bytes) -> bytes:
        """The whole answer, however long."""
        end = self._question_end(question)
        found = self.zone.get(self._name(question))
        texts = [] if found is None else [found] if isinstance(found, str) else list(found)
        records = b"".join(_txt(text.encode("latin-1")) for text in texts)
        code = 0 if texts else _NO_SUCH_NAME
        header = question[:2] + struct.pack(">BBHHHH", 0x85, 0x80 | code, 1, len(texts), 0, 0)
        return header + question[_HEADER:end] + records

    def _name(self, question: bytes) -> str:
        labels: list[str] = []
        at = _HEADER
        while size := question[at]:
            labels.append(question[at + 1 : at + 1 + size].decode())
            at += 1 + size
        return ".".join(labels).lower()

    def _question_end(self, question: bytes) -> int:
        at = _HEADER
        while size := question[at]:
            at += 1 + size
        return at + 5

    def _room(self, question: bytes) -> int:
        """What the asker can take by UDP (EDNS)."""
        at = self._question_end(question)
        if question[10:12] == b"\0\1" and question[at : at + 3] == b"\0" + _OPT.to_bytes(2):
            return max(_CLASSIC_UDP_SIZE, int.from_bytes(question[at + 3 : at + 5]))
        return _CLASSIC_UDP_SIZE


def _txt(text: bytes) -> bytes:
    """A TXT record for the name of the question, its text in strings of up to 255 bytes."""
    parts = [text[at : at + 255] for at in range(0, len(text), 255)] or [b""]
    data = b"".join(bytes([len(part)]) + part for part in parts)
    return b"\xc0\x0c" + struct.pack(">HHIH", _TXT, _IN, 60, len(data)) + data


@asynccontextmanager
async def open_dns_server(zone: Mapping[str, str | Sequence[str]]) -> AsyncGenerator[DnsServer]:
    """A server on a free port of loopback, the same one for UDP and TCP."""
    server = DnsServer(zone)
    while True:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server.port = listener.socket.getsockname()[1]
        udp = trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM)
        try:
            await udp.bind(("127.0.0.1", server.port))
            break
        except OSError:  # taken for UDP by somebody else
            udp.close()
            await listener.aclose()
    with udp:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve_udp, udp)
            nursery.start_soon(trio.serve_listeners, server.serve_tcp, [listener])
            yield server
            nursery.cancel_scope.cancel()
