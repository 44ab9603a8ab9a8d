"""KAFKA: a topic, read by rounds that store the offsets of every partition.

Contract: a round's split has a range of offsets for each partition, so reading it again gives the same rows in the same
order (`kafka/arrival.py`), and nothing is committed to the broker: the checkpoint has the position of its run. Bounded
with the option `ending`, and for a static relation, which ends where the topic does. If the broker is unavailable,
rounds wait for `patience` seconds.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import LogConnector, ParsedRecords, Rejected, Split, Stretch
from penstock.connectors.kafka.arrival import arrived
from penstock.connectors.kafka.client import BOOTSTRAP, PATIENCE_OPTION, PREFIX, TOPIC, settings
from penstock.connectors.kafka.decode import FORMAT, RECORD_BYTES, SCHEMA, WIRE, Decoded, convert, decoder
from penstock.connectors.kafka.fetch import TopicReader, TopicRecords, lost_records
from penstock.connectors.kafka.offsets import (
    Offsets,
    Topic,
    Unanswered,
    first_offsets,
    given_offsets,
    milliseconds,
    shares,
)
from penstock.connectors.options import TEXT, Option, Options, OptionTable, one_of, whole
from penstock.connectors.sources.formats import casts, cells
from penstock.connectors.sources.formats.base import BATCH_ROWS, rejection, too_long
from penstock.errors import PenstockError
from penstock.types import Field, type_name

#: Options that name the column of a part of the record other than its value.
METADATA = ("key", "partition", "offset", "timestamp", "headers")
_STARTING = Option("starting", TEXT, "where reading begins: `earliest`, `latest`, a time, or offsets", "earliest")
_ENDING = Option("ending", TEXT, "where reading ends: `latest` or offsets; without it never")
_MAX_ROWS = Option("max_rows", whole(), "records that a round reads at most", "250000")
_ON_DATA_LOSS = Option(
    "on_data_loss", one_of("fail", "earliest"), "what happens when unread records are gone from the topic", "fail"
)
_TOMBSTONES = Option(
    "tombstones",
    one_of("reject", "null"),
    "what a record without a value is: a dead letter, or a row of NULLs",
    "reject",
)
_METADATA = tuple(Option(name, TEXT, f"the column that holds the {name} of a record") for name in METADATA)
#: Assumed bytes of a record where bytes are distributed among sources: Kafka does not state them.
_NOMINAL_BYTES = 200

Int64s = npt.NDArray[np.int64]


class KafkaSource(LogConnector):
    OPTIONS = OptionTable(
        (
            BOOTSTRAP, TOPIC, FORMAT, *SCHEMA, WIRE, _STARTING, _ENDING, _MAX_ROWS, _ON_DATA_LOSS, PATIENCE_OPTION,
            _TOMBSTONES, RECORD_BYTES, *_METADATA,
        ),
        PREFIX,
    )  # fmt: skip

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        options = Options(f"KAFKA of {source.name}", source.options)
        options.only(self.OPTIONS)
        self._options = options
        self._owner = f"source {source.name}"
        self._written = settings(options)
        self._topic_name = options.needed(TOPIC)
        self._starting = _checked(options, _STARTING, ("earliest", "latest"))
        self._ending = _checked(options, _ENDING, ("", "latest"))
        self._max_rows = max(1, options.value(_MAX_ROWS))
        self._patience = options.value(PATIENCE_OPTION)
        self._lost = options.value(_ON_DATA_LOSS)
        self._limit = options.value(RECORD_BYTES)
        self._null_values = options.value(_TOMBSTONES) == "null"
        options.value(WIRE)
        self._metadata = {option.name: self._column(option) for option in _METADATA if options.has(option)}
        self._value_columns = [i for i in range(len(source.columns)) if i not in self._metadata.values()]
        self._decoder = decoder(source, tuple(source.columns[i] for i in self._value_columns), options)
        self._silent_since: float | None = None

    @property
    def bounded(self) -> bool:
        return bool(self._ending) or self.source.is_static

    def check(self) -> None:
        self._decoder.check()
        try:
            self._topic.partitions()
        except Unanswered as why:
            raise self._topic.unanswered(why) from None

    def discover(self, known: frozenset[str]) -> list[str]:
        return [] if self._topic_name in known else [self._topic_name]

    def splits(self, path: str) -> list[Split]:
        found: list[Split] = []
        stretch = self.plan(None, None)
        while stretch.split is not None:
            ranges = json.loads(stretch.split.detail)
            found.append(self._split({p: [start, stop, 0] for p, (start, stop, _) in ranges.items()}))
            stretch = self.plan(stretch.state, {p: stop for p, (_, stop, _) in ranges.items()})
        return found

    # -- planning ----------------------------------------------------------------------------------------------

    def plan(
        self, state: dict[str, Any] | None, positions: Mapping[str, int] | None, limit: int | None = None
    ) -> Stretch:
        most = self._max_rows if limit is None else max(1, min(self._max_rows, limit // _NOMINAL_BYTES))
        try:
            found = self._plan(state, positions, most)
        except Unanswered as why:
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if state is None or now - self._silent_since > self._patience:
                raise self._topic.unanswered(why) from None
            return Stretch({**state, "at": {**state["at"], **(positions or {})}, "asked": {}}, None, False, 0)
        self._silent_since = None
        return found

    def _plan(self, state: dict[str, Any] | None, positions: Mapping[str, int] | None, most: int) -> Stretch:
        partitions = self._topic.partitions()
        beginnings, ends = self._topic.beginnings(partitions), self._topic.ends(partitions)
        if state is None:
            at = first_offsets(self._topic, self._starting, partitions)
            end = self._ends(ends)
            asked: Offsets = {}
        else:
            at, end, asked = {**state["at"], **(positions or {})}, state["end"], state["asked"]
            # A partition that was added is read from its beginning, wherever the others started.
            at = {**(beginnings if end is None else {}), **at}
        until = ends if end is None else {p: end[p] for p in at if p in end}
        for p in sorted(at, key=int):
            there = p in ends and beginnings[p] <= at[p] <= ends[p]
            if not there and (at[p] < until.get(p, 0) or at[p] > ends.get(p, 0)):
                if self._lost == "fail":
                    raise lost_records(self._owner, self._topic_name, p)
                at[p] = min(beginnings.get(p, 0), until.get(p, 0))
        held = frozenset(p for p, offset in asked.items() if (positions or {}).get(p) == offset)
        ranges = shares(at, until, most, held)
        lag = sum(max(0, ends.get(p, 0) - offset) for p, offset in at.items())
        kept = {"at": at, "end": end, "asked": {p: bounds[0] for p, bounds in ranges.items()}}
        split = self._split(ranges) if ranges else None
        return Stretch(kept, split, end is not None and not ranges, lag)

    def _ends(self, ends: Offsets) -> Offsets | None:
        if not self.bounded:
            return None
        return {**ends, **given_offsets(self._ending)} if self._ending.startswith("{") else ends

    def _split(self, ranges: Mapping[str, list[int]]) -> Split:
        rows = sum(stop - start for start, stop, _ in ranges.values())
        return Split(self._topic_name, bytes=rows * _NOMINAL_BYTES, rows=rows, detail=json.dumps(ranges))

    @cached_property
    def _topic(self) -> Topic:
        return Topic(self._owner, self._topic_name, self._written)

    # -- reading -----------------------------------------------------------------------------------------------

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        ranges: dict[str, list[int]] = json.loads(split.detail)
        reader = TopicReader(self._owner, self._topic_name, self._written, self._patience, self._lost)
        records = reader.read(ranges, "headers" in self._metadata)
        decoded = self._decoded(records)
        arrays = self._arrays(records, decoded)
        time_, timed = self._times(records, decoded, arrays)
        came = arrived(records.partition, records.offset, time_, timed, ranges)
        rank = np.full(len(records), -1, np.int64)
        rank[came.order] = np.arange(len(came.order))
        bad = sorted((r for r in decoded.reasons if rank[r] >= 0), key=lambda r: int(rank[r]))
        rejected = tuple(self._rejected(records, r, decoded.reasons[r]) for r in bad)
        row_rank = rank[decoded.origin]
        rows = np.flatnonzero(row_rank >= 0)
        rows = rows[np.argsort(row_rank[rows], kind="stable")]
        for start in range(0, max(len(rows), 1), BATCH_ROWS):
            part = rows[start : start + BATCH_ROWS]
            origin = decoded.origin[part]
            last = start + BATCH_ROWS >= len(rows)

            def where(row: int, origin: Int64s = origin) -> tuple[str, int]:
                return self._place(records, int(origin[row]))

            yield ParsedRecords(self._batch(arrays, columns, part), rejected, where, came.positions if last else None)
            rejected = ()

    def _decoded(self, records: TopicRecords) -> Decoded:
        """Return rows of the value columns by record, and of the key's column whether it can be read."""
        absent = records.values.is_null().to_numpy(zero_copy_only=False)
        too_many = pc.fill_null(pc.greater(pc.binary_length(records.values), self._limit), False)
        long = too_many.to_numpy(zero_copy_only=False)
        present = np.flatnonzero(~absent & ~long)
        whole = len(present) == len(records)
        decoded = self._decoder.decode(records.values if whole else records.values.take(pa.array(present)))
        found = Decoded(
            decoded.columns, present[decoded.origin], {int(present[r]): why for r, why in decoded.reasons.items()}
        )
        found.reasons |= {int(r): too_long(self._limit) for r in np.flatnonzero(long)}
        nothing = np.flatnonzero(absent)
        if self._null_values and len(nothing):
            order = np.argsort(np.concatenate([found.origin, nothing]), kind="stable")
            found.columns = [
                pa.concat_arrays([c, pa.nulls(len(nothing), c.type)]).take(pa.array(order)) for c in found.columns
            ]
            found.origin = np.concatenate([found.origin, nothing])[order]
        else:
            found.reasons |= {int(r): "the value is null (a tombstone)" for r in nothing}
        return found

    def _arrays(self, records: TopicRecords, decoded: Decoded) -> dict[int, pa.Array]:
        """Return declared position -> its column, one value per row. Rows whose key cannot be read are removed from
        `decoded`.
        """
        key = self._metadata.get("key")
        if key is not None:
            column = self.source.columns[key]
            converted = convert(records.keys, column)
            _leave_out(decoded, converted, records.keys, column)
        stamp = self._metadata.get("timestamp")
        if stamp is not None:
            column = self.source.columns[stamp]
            given = pa.array(records.timestamp, mask=records.timestamp < 0)
            moments = _moments(given, column.type)
            _leave_out(decoded, moments, given, column)
        found = dict(zip(self._value_columns, decoded.columns, strict=True))
        origin = decoded.origin
        for name, position in self._metadata.items():
            type_ = self.source.columns[position].type
            if name == "key":
                found[position] = converted.values.take(pa.array(origin))
            elif name == "headers":
                shown_headers = [_headers_text(records.headers[r]) for r in origin.tolist()] if records.headers else []
                found[position] = pa.array(shown_headers, type_)
            elif name == "timestamp":
                found[position] = moments.values.take(pa.array(origin))
            else:
                given = records.partition if name == "partition" else records.offset
                found[position] = pa.array(given[origin]).cast(type_)
        return found

    def _times(
        self, records: TopicRecords, decoded: Decoded, arrays: Mapping[int, pa.Array]
    ) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Return the time of each record: the largest timestamp of its rows, or Kafka's where rows have none."""
        position = self.source.timestamp
        if position is None:
            return records.timestamp, records.timestamp >= 0
        stamps = arrays[position]
        valid = stamps.is_valid().to_numpy(zero_copy_only=False)
        ticks = stamps.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        time_ = np.full(len(records), np.iinfo(np.int64).min, np.int64)
        np.maximum.at(time_, decoded.origin[valid], ticks[valid])
        timed = np.zeros(len(records), dtype=bool)
        timed[decoded.origin[valid]] = True
        return time_, timed

    def _place(self, records: TopicRecords, record: int) -> tuple[str, int]:
        return f"{self._topic_name}/{records.partition[record]}", int(records.offset[record])

    def _rejected(self, records: TopicRecords, record: int, reason: str) -> Rejected:
        path, offset = self._place(records, record)
        return rejection(path, offset, records.values[record].as_py() or b"", reason)

    def _batch(self, arrays: Mapping[int, pa.Array], columns: tuple[int, ...], rows: Int64s) -> pa.RecordBatch:
        if not columns:
            return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], names=["none"]).select([])
        fields = [pa.field(self.source.columns[c].name, self.source.columns[c].type) for c in columns]
        taken = pa.array(rows)
        return pa.RecordBatch.from_arrays([arrays[c].take(taken) for c in columns], schema=pa.schema(fields))

    def _column(self, option: Option[str]) -> int:
        """Return the position of the column that an option names.

        Raises:
            PenstockError: P0208.
        """
        name = self._options.needed(option)
        position = self.source.columns.index(name)
        if position is None:
            raise PenstockError("P0208", f"{self._options.owner}: option {option.name} names no column: {name}")
        type_ = self.source.columns[position].type
        fits = {
            "key": True,
            "partition": pa.types.is_integer(type_) and type_.bit_width >= 32,
            "offset": type_ == pa.int64(),
            "timestamp": type_ == pa.int64() or pa.types.is_timestamp(type_),
            "headers": pa.types.is_string(type_),
        }[option.name]
        if not fits:
            wanted = {"partition": "INT or BIGINT", "offset": "BIGINT", "timestamp": "TIMESTAMP or BIGINT"}
            message = f"{self._options.owner}: {option.name} goes into a column of {wanted.get(option.name, 'STRING')}"
            raise PenstockError("P0208", f"{message}, {name} is {type_name(type_)}")
        return position


def _checked(options: Options, option: Option[str], words: tuple[str, ...]) -> str:
    """Return an option that is one of `words`, offsets by partition, or for `starting` a time."""
    text = (options.optional(option) or "").strip()
    if text.lower() in words:
        return text.lower()
    try:
        if text.startswith("{") or option != _STARTING:
            given_offsets(text)
        else:
            milliseconds(text)
    except ValueError:
        shown = " or ".join(f"'{word}'" for word in words if word)
        time_ = " or a time such as '2024-03-01T10:00:00Z'" if option == _STARTING else ""
        hint = f"""{shown}, offsets such as '{{"0": 17}}'{time_}"""
        raise PenstockError("P0208", f"{options.owner}: option {option.name} cannot be '{text}'", hint=hint) from None
    return text


def _moments(milliseconds_: pa.Array, type_: pa.DataType) -> cells.Converted:
    return casts.fit(milliseconds_ if type_ == pa.int64() else milliseconds_.cast(pa.timestamp("ms")), type_)


def _leave_out(decoded: Decoded, converted: cells.Converted, given: pa.Array, column: Field) -> None:
    """Reject the records whose part `given` is not a value of `column`."""
    for record in np.flatnonzero(converted.failed):
        shown = cells.complaint(given[int(record)].as_py(), column.type, column.name)
        decoded.reasons.setdefault(int(record), shown)
    if converted.failed.any():
        kept = np.flatnonzero(~converted.failed[decoded.origin])
        decoded.columns = [c.take(pa.array(kept)) for c in decoded.columns]
        decoded.origin = decoded.origin[kept]


def _headers_text(headers: list[tuple[str, bytes | None]] | None) -> str | None:
    """Return the headers of a record as a JSON object; bytes that are not text in base64."""
    return None if headers is None else json.dumps({k: _header(v) for k, v in headers}, ensure_ascii=False)


def _header(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
