"""Spark DataFrames as sources: converting their columns to the types of the language, and writing static ones to files.

A static DataFrame is sorted by its timestamps: the order in which Spark reads files (the largest first) is unrelated to
time, and would make most rows late.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from penstock.errors import PenstockError
from penstock.types import TIMESTAMP, Field, Schema, is_type

_ARRIVAL = "__penstock_arrival"
#: Arrow types that are not types of the language -> the type that holds their values.
_WIDENED_TYPES: dict[pa.DataType, pa.DataType] = {
    **dict.fromkeys((pa.large_string(), pa.string_view(), pa.null()), pa.string()),
    **dict.fromkeys((pa.large_binary(), pa.binary_view()), pa.binary()),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def is_frame(value: object) -> bool:
    return isinstance(value, DataFrame)


def frame_schema(name: str, frame: DataFrame) -> Schema:
    """Return the columns of a DataFrame. Raises PenstockError P0203 for a column whose type the language lacks."""
    columns = [(field.name, _arrow_type(name, field.name, field.dataType)) for field in frame.schema]
    return arrow_columns(name, pa.schema(columns))


def _arrow_type(name: str, column: str, kind: DataType) -> pa.DataType:
    # Nested types are rejected before Spark checks their inner types.
    if isinstance(kind, StructType | ArrayType | MapType):
        raise _unsupported_column(name, column, kind.simpleString())
    try:
        arrow_type: pa.DataType = to_arrow_type(kind, timezone="UTC")
    except PySparkException as error:
        raise _unsupported_column(name, column, kind.simpleString()) from error
    return arrow_type


def arrow_columns(name: str, schema: pa.Schema) -> Schema:
    """Return the columns of an Arrow schema in the types of the language. Raises PenstockError P0203 for a column
    without one.
    """
    return Schema(tuple(Field(field.name, _language_type(name, field.name, field.type)) for field in schema))


def _language_type(name: str, column: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_dictionary(kind):
        return _language_type(name, column, kind.value_type)
    kind = _WIDENED_TYPES.get(kind, kind)
    if not is_type(kind):
        raise _unsupported_column(name, column, str(kind))
    return kind


def plain_table(table: pa.Table, columns: Schema) -> pa.Table:
    """Return an Arrow table with its `columns` in the types of the language: dictionaries and views decoded, small
    types widened. Timestamps keep their unit; the reader converts them.
    """
    columns_in_language = [
        column if column.type == field.type or pa.types.is_timestamp(column.type) else column.cast(field.type)
        for column, field in zip(table.columns, columns, strict=True)
    ]
    return pa.table(columns_in_language, names=list(columns.names))


def _unsupported_column(name: str, column: str, kind: str) -> PenstockError:
    hint = f"leave it out, or cast it first: frame['{column}'].astype(str) of pandas, df.withColumn(...) of Spark"
    return PenstockError("P0203", f"{name}.{column} is {kind}, which is no type of the language", hint=hint)


def write_frame(frame: DataFrame, path: str, timestamp: str | None = None) -> None:
    """Write a static DataFrame as a folder of parquet files: sorted by timestamp, equal ones in order of partitions;
    without timestamps in order of partitions.
    """
    if timestamp is None:
        sorted_frame = frame.coalesce(1)
    else:
        numbered = frame.withColumn(_ARRIVAL, fn.monotonically_increasing_id()).coalesce(1)
        sorted_frame = numbered.sortWithinPartitions(fn.col("`" + timestamp.replace("`", "``") + "`"), _ARRIVAL).drop(
            _ARRIVAL
        )
    sorted_frame.write.mode("overwrite").parquet(path)


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)
