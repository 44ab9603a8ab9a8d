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
from collections.abc import Iterator, Mapping, Set
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import LogConnector, ParsedRecords, Rejected, Split, Stretch
from penstock.connectors.formats import casts, cells
from penstock.connectors.formats.base import BATCH_ROWS, rejection, too_long
from penstock.connectors.kafka.arrival import arrived
from penstock.connectors.kafka.client import BOOTSTRAP, PATIENCE_OPTION, PREFIX, TOPIC, settings
from penstock.connectors.kafka.decode import (
    FORMAT,
    RECORD_BYTES,
    SCHEMA,
    TIMESTAMP_FORMAT,
    WIRE,
    Decoded,
    convert,
    decoder,
)
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
            BOOTSTRAP,
            TOPIC,
            FORMAT,
            *SCHEMA,
            WIRE,
            _STARTING,
            _ENDING,
            _MAX_ROWS,
            _ON_DATA_LOSS,
            PATIENCE_OPTION,
            _TOMBSTONES,
            RECORD_BYTES,
            TIMESTAMP_FORMAT,
            *_METADATA,
        ),
        PREFIX,
    )

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        options = Options(f"KAFKA of {source.name}", source.options)
        options.only(self.OPTIONS)
        options.check_format(self.OPTIONS, options.needed(FORMAT))
        self._options = options
        self._owner = f"source {source.name}"
        self._settings = settings(options)
        self._topic_name = options.needed(TOPIC)
        self._starting = _position_option(options, _STARTING, ("earliest", "latest"))
        self._ending = _position_option(options, _ENDING, ("", "latest"))
        self._max_rows = max(1, options.value(_MAX_ROWS))
        self._patience = options.value(PATIENCE_OPTION)
        self._on_data_loss = options.value(_ON_DATA_LOSS)
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
        except Unanswered as unanswered:
            raise self._topic.unanswered(unanswered) from None

    def discover(self, known: Set[str]) -> list[str]:
        return [] if self._topic_name in known else [self._topic_name]

    def splits(self, path: str) -> list[Split]:
        splits: list[Split] = []
        stretch = self.plan(None, None)
        while stretch.split is not None:
            ranges = json.loads(stretch.split.detail)
            splits.append(self._split({p: [start, stop, 0] for p, (start, stop, _) in ranges.items()}))
            stretch = self.plan(stretch.state, {p: stop for p, (_, stop, _) in ranges.items()})
        return splits

    # -- planning ----------------------------------------------------------------------------------------------

    def plan(
        self, state: dict[str, Any] | None, positions: Mapping[str, int] | None, limit: int | None = None
    ) -> Stretch:
        max_records = self._max_rows if limit is None else max(1, min(self._max_rows, limit // _NOMINAL_BYTES))
        try:
            stretch = self._plan(state, positions, max_records)
        except Unanswered as unanswered:
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if state is None or now - self._silent_since > self._patience:
                raise self._topic.unanswered(unanswered) from None
            return Stretch({**state, "at": {**state["at"], **(positions or {})}, "asked": {}}, None, False, 0)
        self._silent_since = None
        return stretch

    def _plan(self, state: dict[str, Any] | None, positions: Mapping[str, int] | None, max_records: int) -> Stretch:
        partitions = self._topic.partitions()
        beginnings, ends = self._topic.beginnings(partitions), self._topic.ends(partitions)
        if state is None:
            next_offsets = first_offsets(self._topic, self._starting, partitions)
            end = self._end_offsets(ends)
            planned_starts: Offsets = {}
        else:
            next_offsets, end, planned_starts = (
                {**state["at"], **(positions or {})},
                state["end"],
                state["asked"],
            )
            # A partition that was added is read from its beginning, wherever the others started.
            next_offsets = {**(beginnings if end is None else {}), **next_offsets}
        stops = ends if end is None else {p: end[p] for p in next_offsets if p in end}
        for p in sorted(next_offsets, key=int):
            is_available = p in ends and beginnings[p] <= next_offsets[p] <= ends[p]
            if not is_available and (next_offsets[p] < stops.get(p, 0) or next_offsets[p] > ends.get(p, 0)):
                if self._on_data_loss == "fail":
                    raise lost_records(self._owner, self._topic_name, p)
                next_offsets[p] = min(beginnings.get(p, 0), stops.get(p, 0))
        single_record_partitions = frozenset(
            p for p, offset in planned_starts.items() if (positions or {}).get(p) == offset
        )
        ranges = shares(next_offsets, stops, max_records, single_record_partitions)
        lag = sum(max(0, ends.get(p, 0) - offset) for p, offset in next_offsets.items())
        next_state = {"at": next_offsets, "end": end, "asked": {p: bounds[0] for p, bounds in ranges.items()}}
        split = self._split(ranges) if ranges else None
        return Stretch(next_state, split, end is not None and not ranges, lag)

    def _end_offsets(self, ends: Offsets) -> Offsets | None:
        if not self.bounded:
            return None
        return {**ends, **given_offsets(self._ending)} if self._ending.startswith("{") else ends

    def _split(self, ranges: Mapping[str, list[int]]) -> Split:
        rows = sum(stop - start for start, stop, _ in ranges.values())
        return Split(self._topic_name, bytes=rows * _NOMINAL_BYTES, rows=rows, detail=json.dumps(ranges))

    @cached_property
    def _topic(self) -> Topic:
        return Topic(self._owner, self._topic_name, self._settings)

    # -- reading -----------------------------------------------------------------------------------------------

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        ranges: dict[str, list[int]] = json.loads(split.detail)
        reader = TopicReader(self._owner, self._topic_name, self._settings, self._patience, self._on_data_loss)
        records = reader.read(ranges, "headers" in self._metadata)
        decoded = self._decoded(records)
        arrays = self._arrays(records, decoded)
        time_, has_time = self._times(records, decoded, arrays)
        arrived_records = arrived(records.partition, records.offset, time_, has_time, ranges)
        rank = np.full(len(records), -1, np.int64)
        rank[arrived_records.order] = np.arange(len(arrived_records.order))
        rejected_records = sorted((r for r in decoded.reasons if rank[r] >= 0), key=lambda r: int(rank[r]))
        rejected = tuple(self._rejected(records, r, decoded.reasons[r]) for r in rejected_records)
        row_rank = rank[decoded.origin]
        rows = np.flatnonzero(row_rank >= 0)
        rows = rows[np.argsort(row_rank[rows], kind="stable")]
        for start in range(0, max(len(rows), 1), BATCH_ROWS):
            batch_rows = rows[start : start + BATCH_ROWS]
            origin = decoded.origin[batch_rows]
            is_last = start + BATCH_ROWS >= len(rows)

            def where(row: int, origin: Int64s = origin) -> tuple[str, int]:
                return self._location(records, int(origin[row]))

            yield ParsedRecords(
                self._batch(arrays, columns, batch_rows),
                rejected,
                where,
                arrived_records.positions if is_last else None,
            )
            rejected = ()

    def _decoded(self, records: TopicRecords) -> Decoded:
        """Return rows of the value columns by record, and of the key's column whether it can be read."""
        absent = records.values.is_null().to_numpy(zero_copy_only=False)
        too_many = pc.fill_null(pc.greater(pc.binary_length(records.values), self._limit), False)
        is_too_long = too_many.to_numpy(zero_copy_only=False)
        present = np.flatnonzero(~absent & ~is_too_long)
        all_present = len(present) == len(records)
        decoded = self._decoder.decode(records.values if all_present else records.values.take(pa.array(present)))
        all_decoded = Decoded(
            decoded.columns, present[decoded.origin], {int(present[r]): reason for r, reason in decoded.reasons.items()}
        )
        all_decoded.reasons |= {int(r): too_long(self._limit) for r in np.flatnonzero(is_too_long)}
        tombstones = np.flatnonzero(absent)
        if self._null_values and len(tombstones):
            order = np.argsort(np.concatenate([all_decoded.origin, tombstones]), kind="stable")
            all_decoded.columns = [
                pa.concat_arrays([c, pa.nulls(len(tombstones), c.type)]).take(pa.array(order))
                for c in all_decoded.columns
            ]
            all_decoded.origin = np.concatenate([all_decoded.origin, tombstones])[order]
        else:
            all_decoded.reasons |= {int(r): "the value is null (a tombstone)" for r in tombstones}
        return all_decoded

    def _arrays(self, records: TopicRecords, decoded: Decoded) -> dict[int, pa.Array]:
        """Return declared position -> its column, one value per row. Rows whose key cannot be read are removed from
        `decoded`.
        """
        key = self._metadata.get("key")
        if key is not None:
            column = self.source.columns[key]
            converted = convert(records.keys, column)
            _leave_out(decoded, converted, records.keys, column)
        timestamp = self._metadata.get("timestamp")
        if timestamp is not None:
            column = self.source.columns[timestamp]
            source_values = pa.array(records.timestamp, mask=records.timestamp < 0)
            moments = _moments(source_values, column.type)
            _leave_out(decoded, moments, source_values, column)
        arrays = dict(zip(self._value_columns, decoded.columns, strict=True))
        origin = decoded.origin
        for name, position in self._metadata.items():
            type_ = self.source.columns[position].type
            if name == "key":
                arrays[position] = converted.values.take(pa.array(origin))
            elif name == "headers":
                shown_headers = [_headers_text(records.headers[r]) for r in origin.tolist()] if records.headers else []
                arrays[position] = pa.array(shown_headers, type_)
            elif name == "timestamp":
                arrays[position] = moments.values.take(pa.array(origin))
            else:
                source_values = records.partition if name == "partition" else records.offset
                arrays[position] = pa.array(source_values[origin]).cast(type_)
        return arrays

    def _times(
        self, records: TopicRecords, decoded: Decoded, arrays: Mapping[int, pa.Array]
    ) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Return the time of each record: the largest timestamp of its rows, or Kafka's where rows have none."""
        timestamps = self.source.timestamps(lambda position: arrays[position], len(decoded.origin))
        if timestamps is None:
            return records.timestamp, records.timestamp >= 0
        valid = timestamps.is_valid().to_numpy(zero_copy_only=False)
        ticks = timestamps.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        time_ = np.full(len(records), np.iinfo(np.int64).min, np.int64)
        np.maximum.at(time_, decoded.origin[valid], ticks[valid])
        has_time = np.zeros(len(records), dtype=bool)
        has_time[decoded.origin[valid]] = True
        return time_, has_time

    def _location(self, records: TopicRecords, record: int) -> tuple[str, int]:
        return f"{self._topic_name}/{records.partition[record]}", int(records.offset[record])

    def _rejected(self, records: TopicRecords, record: int, reason: str) -> Rejected:
        path, offset = self._location(records, record)
        return rejection(path, offset, records.values[record].as_py() or b"", reason)

    def _batch(self, arrays: Mapping[int, pa.Array], columns: tuple[int, ...], rows: Int64s) -> pa.RecordBatch:
        if not columns:
            return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], names=["none"]).select([])
        fields = [pa.field(self.source.columns[c].name, self.source.columns[c].type) for c in columns]
        indices = pa.array(rows)
        return pa.RecordBatch.from_arrays([arrays[c].take(indices) for c in columns], schema=pa.schema(fields))

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
            types = {"partition": "INT or BIGINT", "offset": "BIGINT", "timestamp": "TIMESTAMP or BIGINT"}
            message = f"{self._options.owner}: {option.name} goes into a column of {types.get(option.name, 'STRING')}"
            raise PenstockError("P0208", f"{message}, {name} is {type_name(type_)}")
        return position


def _position_option(options: Options, option: Option[str], words: tuple[str, ...]) -> str:
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
        accepted_words = " or ".join(f"'{word}'" for word in words if word)
        time_hint = " or a time such as '2024-03-01T10:00:00Z'" if option == _STARTING else ""
        hint = f"""{accepted_words}, offsets such as '{{"0": 17}}'{time_hint}"""
        raise PenstockError("P0208", f"{options.owner}: option {option.name} cannot be '{text}'", hint=hint) from None
    return text


def _moments(milliseconds_: pa.Array, type_: pa.DataType) -> cells.Converted:
    return casts.fit(milliseconds_ if type_ == pa.int64() else milliseconds_.cast(pa.timestamp("ms")), type_)


def _leave_out(decoded: Decoded, converted: cells.Converted, values: pa.Array, column: Field) -> None:
    """Reject the records whose part `values` is not a value of `column`."""
    for record in np.flatnonzero(converted.failed):
        complaint = cells.complaint(values[int(record)].as_py(), column.type, column.name)
        decoded.reasons.setdefault(int(record), complaint)
    if converted.failed.any():
        remaining = np.flatnonzero(~converted.failed[decoded.origin])
        decoded.columns = [c.take(pa.array(remaining)) for c in decoded.columns]
        decoded.origin = decoded.origin[remaining]


def _headers_text(headers: list[tuple[str, bytes | None]] | None) -> str | None:
    """Return the headers of a record as a JSON object; bytes that are not text in base64, several headers of one name
    as an array in their order."""
    if headers is None:
        return None
    shown: dict[str, list[str | None]] = {}
    for name, value in headers:
        shown.setdefault(name, []).append(_header(value))
    members = {name: values if len(values) > 1 else values[0] for name, values in shown.items()}
    return json.dumps(members, ensure_ascii=False)


def _header(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
