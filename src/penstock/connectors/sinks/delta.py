"""DELTA: the result of a query as a Delta Lake table, one commit per batch.

Contract: every commit has the number of its batch as an application transaction of the table itself (application: the
query; version: the run's number in the high bits, the batch's in the low ones), so a repeated batch is found in the
table's log and skipped. Each run takes a new number, so a run that was replaced cannot write any more. With `key` the
table holds the rows of the relation as they are after the batch; without it the changes, or the stream.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.connectors import delta_log
from penstock.connectors.contract import Sink, Target
from penstock.connectors.delta_log import one_line
from penstock.connectors.local_paths import blocking_file, parts_of
from penstock.connectors.options import TEXT, Option, Options, OptionTable
from penstock.connectors.sinks.tables import check_rows, no_column, not_ours, other_type, stored_schema
from penstock.connectors.sinks.upserts import KEY, MODE, Net, is_unique, key_option, net, only_adds, violation
from penstock.errors import PenstockError, nearest
from penstock.types import type_name

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_PATH = Option("path", TEXT, "the folder of the table", required=True)
_PARTITION_BY = Option("partition_by", TEXT, "columns, with commas, by which a new table is partitioned")
_RUN = 32
_TRIES, _PAUSE = 6, 0.05
_OP = "_penstock_op"
_FAILURES = (delta_log.DeltaError, OSError, ValueError, pa.ArrowException)


class DeltaSink(Sink):
    OPTIONS = OptionTable((_PATH, MODE, _PARTITION_BY, KEY))

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        options = Options(f"INTO DELTA of {query.name}", query.sink.options)
        options.only(self.OPTIONS)
        self._path = delta_log.table_path(options.needed(_PATH))
        self._appends = options.value(MODE) == "append"
        self._key = key_option(options, query)
        self._partition = [name.strip() for name in options.text(_PARTITION_BY).split(",") if name.strip()]
        self._run: int | None = None
        self._where = f"query {query.name}: {self._path}"
        for column in self._schema():
            if pa.types.is_duration(column.type):
                message = f"{options.owner}: Delta has no {type_name(column.type)}, the type of column {column.name}"
                raise PenstockError("P0208", message, hint="CAST it AS STRING, or AS DOUBLE for its seconds")
        unknown = [name for name in self._partition if name not in self._schema().names]
        if unknown:
            message = f"{options.owner}: option partition_by: the result has no column {unknown[0]}"
            raise PenstockError("P0208", message, hint=nearest(unknown[0], self._schema().names))

    @property
    def place(self) -> str:
        return self._path

    @classmethod
    def target(cls, query: Query) -> Target | None:
        options = Options(f"INTO DELTA of {query.name}", query.sink.options)
        path = Path(delta_log.table_path(options.needed(_PATH)))
        return Target("files", parts_of(path), str(path), only_adds(options), str(blocking_file(path) or ""))

    @property
    def _app(self) -> str:
        return f"penstock/{self.query.name}"

    def open(self, resume: bool, overwrite: bool) -> None:
        owner = f"query {self.query.name}"
        delta_log.needed(owner)
        try:
            if not delta_log.deltalake.DeltaTable.is_deltatable(self._path):
                self._create(resume)
                return
            table = delta_log.open_table(owner, self._path)
            last = table.transaction_version(self._app)
            if resume:
                if last is None:
                    raise not_ours(self._where)
                self._run = last >> _RUN
                return
            self._run = 0 if last is None else (last >> _RUN) + 1
            self._begin(table, overwrite, last is not None)
        except _FAILURES as error:
            raise self._failed(error) from error

    def withdraw(self) -> None:
        if not self._appends:
            self.open(resume=False, overwrite=True)

    def write(self, batch: int, table: pa.Table) -> None:
        if not table.num_rows:
            return
        changes = net(self.query, self._key, table) if self._key else None
        for attempt in range(_TRIES):
            try:
                self._write(batch, table, changes)
                return
            except delta_log.CommitFailedError as error:
                # Another writer, such as a compaction, committed first: read the table again and retry.
                if attempt == _TRIES - 1:
                    raise self._failed(error) from error
                time.sleep(_PAUSE * 2**attempt)
            except _FAILURES as error:
                raise self._failed(error) from error

    def _write(self, batch: int, table: pa.Table, changes: Net | None) -> None:
        target = delta_log.open_table(f"query {self.query.name}", self._path)
        last = target.transaction_version(self._app)
        if last is None or last >> _RUN != self._run:
            raise not_ours(self._where)
        if last & ((1 << _RUN) - 1) > batch:
            return
        commit = self._commit(batch + 1)
        if changes is not None:
            self._merge(target, changes, commit)
        else:
            rows = self._typed(table)
            delta_log.deltalake.write_deltalake(
                target, rows, mode="append", schema_mode="merge", commit_properties=commit
            )

    # -- the beginning -----------------------------------------------------------------------------------------

    def _create(self, resume: bool) -> None:
        if resume:
            raise not_ours(self._where)
        self._run = 0
        delta_log.deltalake.DeltaTable.create(
            self._path, self._schema(), partition_by=self._partition or None, commit_properties=self._commit(0)
        )

    def _begin(self, table: DeltaTable, overwrite: bool, written_by_query: bool) -> None:
        """Take the table over for this run.

        Raises:
            PenstockError: P0501, it may not be replaced.
        """
        empty = table.count() == 0
        if not self._appends and not empty:
            check_rows(self._where, overwrite, written_by_query)
        if not self._appends and (empty or overwrite):
            delta_log.deltalake.write_deltalake(
                table,
                self._schema().empty_table(),
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=self._partition or None,
                commit_properties=self._commit(0),
            )
            return
        self._check_columns(delta_log.arrow_schema(table.schema()))
        partition = table.metadata().partition_columns
        if self._partition and partition != self._partition:
            message = f"{self._where} is partitioned by {', '.join(partition) or 'nothing'}"
            raise PenstockError("P0501", message, hint="leave partition_by out")
        table.create_write_transaction(
            [], "append", table.schema(), partition_by=partition or None, commit_properties=self._commit(0)
        )

    def _check_columns(self, schema: pa.Schema) -> None:
        for column in self._schema():
            index = schema.get_field_index(column.name)
            if index < 0:
                raise no_column(self._where, column.name, schema.names)
            stored_type = schema.field(index).type
            if stored_type != column.type:
                raise other_type(self._where, column.name, type_name(stored_type), type_name(column.type))

    def _schema(self) -> pa.Schema:
        columns = stored_schema(self.query)
        return pa.schema(list(columns)[2:]) if self._key else columns

    def _typed(self, table: pa.Table) -> pa.Table:
        return table.select(self._schema().names).cast(self._schema())

    # -- batches -----------------------------------------------------------------------------------------------

    def _merge(self, target: DeltaTable, changes: Net, commit: CommitProperties) -> None:
        rows = self._typed(changes.rows)
        self._check_unique_keys(target, rows, changes)
        source = rows.append_column(_OP, pa.array(changes.stays))
        on = " AND ".join(f"(t.{_name(k)} IS NOT DISTINCT FROM s.{_name(k)})" for k in self._key)
        values = {_name(name): f"s.{_name(name)}" for name in rows.column_names}
        merge = target.merge(source, on, source_alias="s", target_alias="t", commit_properties=commit)
        merge = merge.when_matched_delete(f"NOT s.{_OP}").when_matched_update(values, f"s.{_OP}")
        merge.when_not_matched_insert(values, f"s.{_OP}").execute()

    def _check_unique_keys(self, target: DeltaTable, rows: pa.Table, changes: Net) -> None:
        """Check that a new key is not in the table yet, where the plan does not guarantee it."""
        if self._appends or is_unique(self.query, self._key) or not changes.fresh.any():
            return
        new_keys = rows.filter(pa.array(changes.fresh)).select(list(self._key))
        existing = delta_log.columns_of(target, self._key)
        duplicates = new_keys.join(existing.cast(new_keys.schema), keys=list(self._key), join_type="left semi")
        if duplicates.num_rows:
            raise violation(self.query, self._key, duplicates, 0)

    def _commit(self, batches_done: int) -> CommitProperties:
        """Return the properties of a commit: the number of batches of this run that the table has with it."""
        assert self._run is not None
        number = (self._run << _RUN) | batches_done
        transaction = delta_log.deltalake.Transaction(self._app, number)
        return delta_log.deltalake.CommitProperties(
            custom_metadata={"penstock.query": self.query.name}, app_transactions=[transaction]
        )

    def _failed(self, error: BaseException) -> PenstockError:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else one_line(error)
        hint = "free space on that disk, or allow writing there; nothing of this batch is visible"
        message = f"{self._where} cannot be written: {reason}"
        return PenstockError("P0502", message, hint=hint, cause=error)


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
