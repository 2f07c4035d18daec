"""Which addresses count as public."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.egress import AddressKind, EgressPolicy, classify


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", AddressKind.PUBLIC),
        ("2606:4700::1111", AddressKind.PUBLIC),
        ("::ffff:8.8.8.8", AddressKind.PUBLIC),
        ("64:ff9b::808:808", AddressKind.PUBLIC),
        ("127.0.0.1", AddressKind.PRIVATE),
        ("127.255.0.1", AddressKind.PRIVATE),
        ("10.0.0.1", AddressKind.PRIVATE),
        ("172.16.0.1", AddressKind.PRIVATE),
        ("192.168.1.1", AddressKind.PRIVATE),
        ("100.64.0.1", AddressKind.PRIVATE),
        ("198.18.0.1", AddressKind.PRIVATE),
        ("240.0.0.1", AddressKind.PRIVATE),
        ("255.255.255.255", AddressKind.PRIVATE),
        ("::1", AddressKind.PRIVATE),
        ("fc00::1", AddressKind.PRIVATE),
        ("fec0::1", AddressKind.PRIVATE),
        ("2001:db8::1", AddressKind.PRIVATE),
        ("::ffff:10.0.0.1", AddressKind.PRIVATE),
        ("::7f00:1", AddressKind.PRIVATE),
        ("2002:7f00:1::", AddressKind.PRIVATE),
        ("64:ff9b::a00:1", AddressKind.PRIVATE),
        ("64:ff9b:1::1", AddressKind.PRIVATE),
        ("0.0.0.0", AddressKind.FORBIDDEN),
        ("0.1.2.3", AddressKind.FORBIDDEN),
        ("::", AddressKind.FORBIDDEN),
        ("169.254.169.254", AddressKind.FORBIDDEN),
        ("168.63.129.16", AddressKind.FORBIDDEN),
        ("100.100.100.200", AddressKind.FORBIDDEN),
        ("224.0.0.1", AddressKind.FORBIDDEN),
        ("fe80::1", AddressKind.FORBIDDEN),
        ("fe80::1%eth0", AddressKind.FORBIDDEN),
        ("ff02::1", AddressKind.FORBIDDEN),
        ("fd00:ec2::254", AddressKind.FORBIDDEN),
        ("::ffff:169.254.169.254", AddressKind.FORBIDDEN),
        ("64:ff9b::a9fe:a9fe", AddressKind.FORBIDDEN),
        ("2002:a9fe:a9fe::", AddressKind.FORBIDDEN),
    ],
)
def test_kinds(address: str, kind: AddressKind) -> None:
    assert classify(address) is kind


@given(st.ip_addresses(v=4))
def test_a_wrapped_address_is_never_more_open_than_itself(inner: ipaddress.IPv4Address) -> None:
    order = [AddressKind.PUBLIC, AddressKind.PRIVATE, AddressKind.FORBIDDEN]
    rank = order.index(classify(str(inner)))
    number = int(inner)
    for wrapped in (
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
    ):
        assert order.index(classify(str(wrapped))) >= rank


def test_what_a_policy_opens() -> None:
    strict, local = EgressPolicy(), EgressPolicy(allow_private=True)
    assert [policy.allows_address("10.0.0.1") for policy in (strict, local)] == [False, True]
    assert [policy.allows_address("169.254.169.254") for policy in (strict, local)] == [False, False]
    named = EgressPolicy(allowed_hosts=frozenset({"llm.internal", "10.0.0.1"}))
    assert named.allows_host("LLM.internal.") and named.allows_host("10.0.0.1") and not named.allows_host("internal")


def test_not_an_address() -> None:
    with pytest.raises(ValueError):
        classify("localhost")
