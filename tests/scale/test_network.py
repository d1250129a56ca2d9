"""Links, and how people write them."""

from __future__ import annotations

import re

import pytest

from pullback.ir.errors import ArgumentError
from pullback.scale.network import (
    Link,
    Network,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
    parse_link,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "bandwidth", "latency", "message"),
    [
        ("100Gb/10us", 12.5e9, 1e-5, 5e-7),
        ("100 Gbit/s/10µs", 12.5e9, 1e-5, 5e-7),
        ("12.5GB/0.01ms", 12.5e9, 1e-5, 5e-7),
        ("1Gbps/1e2us", 125e6, 1e-4, 5e-7),
        ("2GiB/500ns/0.25us", 2.0**31, 5e-7, 2.5e-7),
        ("1Gb/1us/0s", 125e6, 1e-6, 0.0),
        ("800kb/0s", 1e5, 0.0, 5e-7),
        ("400Gbits/1 us", 5e10, 1e-6, 5e-7),
    ],
)
def test_links(text: str, bandwidth: float, latency: float, message: float) -> None:
    link = parse_link(text)
    assert (link.bandwidth, link.latency, link.message) == pytest.approx((bandwidth, latency, message), rel=1e-12)


@pytest.mark.parametrize("text", ["100Gb/10us", "1Gb/1ms/2us", "0.8Gb/250ns"])
def test_what_a_link_prints_is_read_again(text: str) -> None:
    assert str(parse_link(text)) == text


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_link, "100Gb", "a network is BANDWIDTH/LATENCY, got '100Gb'"),
        (parse_link, "100/10us", "a bandwidth is a number > 0 of bits or bytes a second, got '100'"),
        (parse_link, "0Gb/10us", "a bandwidth is a number > 0 of bits or bytes a second, got '0Gb'"),
        (parse_link, "-1Gb/10us", "a bandwidth is a number > 0"),
        (parse_link, "10us/100Gb", "a bandwidth is a number > 0"),
        (parse_link, "100Gb/10", "a time is a number with ns, us, ms or s, got '10'"),
        (parse_link, "100Gb/10min", "a time is a number with ns, us, ms or s, got '10min'"),
        (parse_link, "100Gb/1us/1us/1us", "a network is BANDWIDTH/LATENCY"),
        (parse_bytes, "4Mb", "a size is a number of bytes, got '4Mb'"),
        (parse_bytes, "much", "a size is a number of bytes, got 'much'"),
    ],
)
def test_what_is_refused(parse, text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)) as raised:
        parse(text)
    assert raised.value.hint


def test_sizes_and_times() -> None:
    assert [parse_bytes(t) for t in ("4MB", "4MiB", "65536", "1.5 kB", "1e6B")] == [
        4_000_000,
        1 << 22,
        65536,
        1500,
        10**6,
    ]
    assert parse_bandwidth("8Tb") == pytest.approx(1e12)
    for seconds in (3e-9, 2.5e-7, 1e-5, 0.25, 12.0):
        assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=1e-3)


def test_a_message_takes_alpha_and_beta() -> None:
    assert Link(1e9, 1e-5).seconds(1e6) == pytest.approx(1e-5 + 1e-3)
    assert Link(1e9, 1e-5).seconds(1e6, 3) == pytest.approx(1e-5 + 3e-3)


@pytest.mark.parametrize("options", [{"ranks_per_node": 0}, {"cores": True}, {"ranks_per_node": 1.5}])
def test_nodes_are_counted(options) -> None:
    with pytest.raises(ArgumentError, match="must be an int ≥ 1"):
        Network(Link(1e9, 1e-5), **options)
