"""Which addresses are public, which are private, and which are never to be asked."""

from __future__ import annotations

import ipaddress
from enum import Enum
from functools import lru_cache

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressKind(Enum):
    """How an address is treated: PRIVATE ones an operator may allow as a whole, FORBIDDEN ones only by host name."""

    PUBLIC = "public"
    PRIVATE = "private"
    FORBIDDEN = "forbidden"


# Credential endpoints of clouds that are not link-local, so that `allow_private` would otherwise open them.
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254")
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_SITE_LOCAL = ipaddress.IPv6Network("fec0::/10")


@lru_cache(maxsize=4096)
def classify(address: str) -> AddressKind:
    """The kind of an IP address literal; raises ValueError for anything else.

    An IPv6 address that carries an IPv4 address (mapped, 6to4, Teredo, NAT64) is as restricted as the worse of the two.
    """
    ip = ipaddress.ip_address(address)
    kinds = {_kind(ip)} | {_kind(inner) for inner in _embedded(ip)}
    for kind in (AddressKind.FORBIDDEN, AddressKind.PRIVATE):
        if kind in kinds:
            return kind
    return AddressKind.PUBLIC


def _kind(ip: IPAddress) -> AddressKind:
    if isinstance(ip, ipaddress.IPv6Address) and (ip.ipv4_mapped is not None or ip in _NAT64):
        return AddressKind.PUBLIC  # a wrapper only: the address inside decides
    if ip in _METADATA or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        return AddressKind.FORBIDDEN
    if isinstance(ip, ipaddress.IPv4Address) and ip in ipaddress.IPv4Network("0.0.0.0/8"):
        return AddressKind.FORBIDDEN
    if not ip.is_global or ip.is_private or ip.is_reserved:
        return AddressKind.PRIVATE
    if isinstance(ip, ipaddress.IPv6Address) and (ip in _SITE_LOCAL or ip in _NAT64_LOCAL):
        return AddressKind.PRIVATE
    return AddressKind.PUBLIC


def _embedded(ip: IPAddress) -> list[IPAddress]:
    if not isinstance(ip, ipaddress.IPv6Address):
        return []
    found: list[IPAddress] = [inner for inner in (ip.ipv4_mapped, ip.sixtofour) if inner is not None]
    if ip.teredo is not None:
        found.extend(ip.teredo)
    if ip in _NAT64:
        found.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return found
