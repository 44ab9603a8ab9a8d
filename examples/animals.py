"""The data of `make demo-animals`: the animal sensors of [csql 7] as two streams, made up, and the same every time.

Every animal has a collar that tells each heart beat as it comes, and its body condition every full second. An animal's
heart follows what it does: it rests, walks or runs for some minutes, and pulse, temperature and blood pressure drift to
what goes with that. One parquet file per stream and quarter of an hour, in the order of time.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

MINUTES = 120
SEED = 2006
#: 2006-08-14, the day of the paper, in microseconds since 1970.
START = 1_155_513_600_000_000
SECOND = 1_000_000
#: Heart beats a minute, degrees and pressure of an animal that rests; how many times as fast its heart beats at rest,
#: walking and running; temperature and pressure rise with that.
SPECIES = {"horse": (36.0, 37.3, 90.0), "cow": (60.0, 38.0, 115.0), "dog": (90.0, 38.1, 105.0)}
PACES = (1.0, 1.5, 2.4)
HERD = ("horse", "cow", "horse", "dog", "horse", "cow")

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sensors:
    """Both streams, each in the order of its timestamps."""

    body: pa.Table
    pulse: pa.Table


def sensors(minutes: int = MINUTES, seed: int = SEED) -> Sensors:
    """What the herd's sensors tell in the first `minutes`."""
    draw = np.random.default_rng(seed)
    bodies, pulses = [], []
    for number, species in enumerate(HERD, 1):
        pace = _pace(draw, minutes * 60)
        rest, warmth, pressure = SPECIES[species]
        pulses.append(_beats(draw, number, rest * pace))
        noise = draw.normal(size=(2, len(pace)))
        bodies.append(
            _body(number, species, warmth + 0.5 * pace + 0.05 * noise[0], pressure + 20 * pace + 2 * noise[1])
        )
    return Sensors(_in_order(bodies), _in_order(pulses))


def prepare(folder: Path, minutes: int = MINUTES) -> None:
    """Fill `folder`, unless it is there."""
    if folder.is_dir():
        return
    half_made = folder.with_name(folder.name + ".part")
    shutil.rmtree(half_made, ignore_errors=True)
    found = sensors(minutes)
    for name, table in (("body", found.body), ("pulse", found.pulse)):
        (half_made / name).mkdir(parents=True)
        quarters = (table.column("Timestamp").cast(pa.int64()).to_numpy() - START - 1) // (15 * 60 * SECOND)
        for quarter in np.unique(quarters):
            pq.write_table(table.filter(pa.array(quarters == quarter)), half_made / name / f"{quarter:02d}.parquet")
    half_made.rename(folder)


def _pace(draw: np.random.Generator, seconds: int) -> Doubles:
    """What an animal does in each second: a stay of some minutes, and a drift to the pace of the next."""
    stays = draw.integers(60, 300, size=seconds // 60 + 1)
    wanted = np.repeat(draw.choice(PACES, p=(0.5, 0.35, 0.15), size=len(stays)), stays)[:seconds]
    weights = np.exp(-np.arange(120) / 20.0)
    return np.convolve(np.concatenate([np.full(119, wanted[0]), wanted]), weights / weights.sum(), "valid")


def _beats(draw: np.random.Generator, number: int, rate: Doubles) -> pa.Table:
    """A beat whenever another whole one is due at `rate` a minute, some milliseconds early or late."""
    due = np.cumsum([draw.random(), *(rate / 60.0)])
    at = np.interp(np.arange(1, int(due[-1]) + 1), due, np.arange(len(rate) + 1.0))
    at += draw.normal(scale=0.02, size=len(at))
    at = np.sort(np.clip(at, 0.001, float(len(rate))))
    return _table({"Id": pa.array(np.full(len(at), number), pa.int32())}, (at * 1000).astype(np.int64) * 1000)


def _body(number: int, species: str, warmth: Doubles, pressure: Doubles) -> pa.Table:
    columns = {
        "Id": pa.array(np.full(len(warmth), number), pa.int32()),
        "Species": pa.array([species] * len(warmth)),
        "BTemp": pa.array(np.round(warmth, 1)),
        "BloodP": pa.array(np.round(pressure).astype(np.int32)),
    }
    return _table(columns, np.arange(1, len(warmth) + 1) * SECOND)


def _table(columns: dict[str, pa.Array], ticks: npt.NDArray[np.int64]) -> pa.Table:
    return pa.table({**columns, "Timestamp": pa.array(ticks + START).cast(pa.timestamp("us", tz="UTC"))})


def _in_order(tables: list[pa.Table]) -> pa.Table:
    """All animals' rows by timestamp; those of one second in the order of the animals."""
    return pa.concat_tables(tables).sort_by([("Timestamp", "ascending"), ("Id", "ascending")])
