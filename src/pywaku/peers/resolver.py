"""DNS lookups under trio, by `dnspython`: over UDP, and over TCP where an answer does not fit."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.nameserver

from pywaku.errors import InvalidInput, NetworkError

DNS_PORT: Final = 53


class DnsResolver:
    """Asks the system's name servers (`/etc/resolv.conf`), or those that are given (`1.1.1.1`, `[::1]:5353`).

    Each lookup takes up to `timeout_s`, with all servers and repetitions.
    """

    def __init__(self, servers: Sequence[str] = (), *, timeout_s: float = 5.0) -> None:
        if timeout_s <= 0:
            raise InvalidInput(f"timeout_s is positive, not {timeout_s}")
        try:
            self._resolver = dns.asyncresolver.Resolver(configure=not servers)
        except dns.exception.DNSException as error:
            raise InvalidInput(f"the system names no name servers ({error}); name some") from None
        if servers:
            self._resolver.nameservers = [
                dns.nameserver.Do53Nameserver(host, port) for host, port in map(parse_server, servers)
            ]
        self._resolver.lifetime = timeout_s
        self.patience_s = min(2.0, timeout_s)
        """How long one server may take before the next one has its turn."""
        self._backend = dns.asyncbackend.get_backend("trio")

    async def txt(self, name: str) -> list[str]:
        """The texts at a name, each put together from its strings; what is not ASCII is left out."""
        self._resolver.timeout = self.patience_s
        try:
            answer = await self._resolver.resolve(f"{name.rstrip('.')}.", "TXT", backend=self._backend)
        except (dns.exception.DNSException, OSError) as error:
            raise NetworkError(f"{name}: {str(error) or type(error).__name__}") from None
        texts: list[str] = []
        for record in answer:
            text = b"".join(record.strings)
            if text.isascii():
                texts.append(text.decode())
        return texts


def parse_server(text: str) -> tuple[str, int]:
    """Address and port of a name server; raises `InvalidInput`."""
    host, port = text.strip(), str(DNS_PORT)
    if host.startswith("[") and "]" in host:
        host, _, rest = host[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    try:
        address = str(ipaddress.ip_address(host))
        number = int(port)
    except ValueError:
        raise InvalidInput(f"a name server is an IP address, and a port if need be, not {text!r}") from None
    if not 0 < number < 1 << 16:
        raise InvalidInput(f"a port lies between 1 and 65535, not {number}")
    return address, number
