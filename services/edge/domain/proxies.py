"""Whose request is it, behind proxies? Requests and sockets are counted by the address that is found here."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(listed: str) -> tuple[Network, ...]:
    """The networks of a comma-separated list of addresses and CIDR blocks. Raises ValueError."""
    names = (name.strip() for name in listed.split(","))
    return tuple(ipaddress.ip_network(name) for name in names if name)


class Proxies:
    """The proxies that are trusted to say whose request they pass on (X-Forwarded-For)."""

    def __init__(self, trusted: Sequence[Network]) -> None:
        self._trusted = tuple(trusted)

    def __bool__(self) -> bool:
        return bool(self._trusted)

    def client(self, peer: str, forwarded: Sequence[str]) -> str:
        """The rightmost address that is no trusted proxy, of what was forwarded and the TCP peer.

        Each proxy appends whom it was asked by, so what stands left of the first that is not trusted is anybody's word.
        When all are trusted it is the leftmost; what is no address ends the search.
        """
        found = _address(peer)
        if found is None:
            return peer
        hops = [hop for line in forwarded for hop in line.split(",")]
        while hops and self._trusts(found):
            before = _address(hops.pop())
            if before is None:
                break
            found = before
        return str(found)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def _address(text: str) -> Address | None:
    """An address, perhaps with a port or in brackets; None for anything else."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    # One client has one name, however a listener of both families shows it.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
