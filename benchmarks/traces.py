"""A connection trace like that of the Lawrence Berkeley Laboratory which Golab used (`[golab 3.6]`, LBL-CONN-7).

The columns are the trace's: timestamp, duration, protocol, bytes of either direction, hosts, state and flag. The values
are drawn, seeded: hosts and services are as skewed as such traffic is (a few of both make most of it), durations and
sizes are log-normal by service, and unknown where the connection was refused. About one connection per tick and link.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

#: Service -> (part of all connections, median seconds, median bytes sent, received).
SERVICES: dict[str, tuple[float, float, float, float]] = {
    "nntp": (0.20, 1.5, 200.0, 80.0),
    "smtp": (0.22, 2.0, 1_500.0, 330.0),
    "telnet": (0.16, 240.0, 400.0, 4_000.0),
    "ftp-data": (0.14, 3.0, 40.0, 6_000.0),
    "finger": (0.07, 1.0, 10.0, 400.0),
    "ftp": (0.05, 60.0, 300.0, 900.0),
    "http": (0.04, 2.0, 120.0, 4_500.0),
    "login": (0.03, 200.0, 300.0, 3_000.0),
    "domain": (0.03, 0.3, 40.0, 120.0),
    "shell": (0.03, 1.0, 200.0, 200.0),
    "other": (0.03, 5.0, 500.0, 500.0),
}
SOURCES, DESTINATIONS = 2_000, 12_000
COLUMNS = (
    "ts INT, duration DOUBLE, protocol STRING, bytes_sent BIGINT, bytes_received BIGINT, "
    "source INT, destination INT, state STRING, flag STRING"
)


def link(number: int, ticks: int, seed: int = 19930916) -> pa.Table:
    """The connections of one outgoing link over `ticks` time units; links are cut by destination, as in the thesis."""
    draw = np.random.default_rng([seed, number])
    size = ticks
    ts = np.sort(draw.integers(0, ticks, size)).astype(np.int32)
    names = list(SERVICES)
    parts = np.array([SERVICES[name][0] for name in names])
    service = draw.choice(len(names), size, p=parts / parts.sum())
    refused = draw.random(size) < 0.12
    sizes = [_lognormal(draw, np.array([SERVICES[n][k] for n in names])[service], refused) for k in (1, 2, 3)]
    state = np.where(
        refused, draw.choice(["REJ", "S0"], size), draw.choice(["SF", "S1", "RSTO"], size, p=[0.9, 0.06, 0.04])
    )
    return pa.table(
        {
            "ts": pa.array(ts),
            "duration": pa.array(sizes[0], mask=refused),
            "protocol": pa.DictionaryArray.from_arrays(pa.array(service), pa.array(names)).cast(pa.string()),
            "bytes_sent": pa.array(sizes[1].astype(np.int64), mask=refused),
            "bytes_received": pa.array(sizes[2].astype(np.int64), mask=refused),
            "source": pa.array(_skewed(draw, SOURCES, size)),
            "destination": pa.array(_skewed(draw, DESTINATIONS, size) * 8 + number),
            "state": pa.array(state),
            "flag": pa.array(np.where(draw.random(size) < 0.35, "L", "N")),
        }
    )


def _lognormal(draw: np.random.Generator, median: np.ndarray, refused: np.ndarray) -> np.ndarray:
    return np.where(refused, 0.0, np.round(median * np.exp(draw.normal(0.0, 1.4, len(median))), 2))


def _skewed(draw: np.random.Generator, hosts: int, size: int) -> np.ndarray:
    """Hosts by Zipf's law with exponent 0.9; which host is how busy is the same on all links."""
    weights = 1.0 / np.arange(1, hosts + 1) ** 0.9
    return draw.choice(hosts, size, p=weights / weights.sum()).astype(np.int32)


#: Different sources of packets, as in the trace of `[golab 6.3]`.
PACKET_SOURCES = 1_647


def packets(seed: int, size: int = 500_000) -> np.ndarray:
    """The sources of packets, in order: by Zipf's law with exponent 1.2, in trains of geometric length, mean 4. Without
    trains small sub-windows hold few packets of one source, and δ stays far above what the thesis shows."""
    draw = np.random.default_rng([seed, 63])
    weights = 1.0 / np.arange(1, PACKET_SOURCES + 1) ** 1.2
    trains = draw.choice(PACKET_SOURCES, size, p=weights / weights.sum())
    lengths = draw.geometric(0.25, size)
    return np.repeat(trains, lengths)[:size].astype(np.int64)
