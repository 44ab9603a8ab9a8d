"""Spark DataFrames as sources: their columns in our types, and static ones written down for the readers."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.types import TIMESTAMP, Field, Schema


def is_frame(value: object) -> bool:
    return isinstance(value, DataFrame)


def frame_schema(name: str, frame: DataFrame) -> Schema:
    """The columns of a DataFrame. Raises PenstockError P0203 for a nested one."""
    return arrow_columns(name, to_arrow_schema(frame.schema))


def arrow_columns(name: str, schema: pa.Schema) -> Schema:
    """The columns of an Arrow schema in our types."""
    fields: list[Field] = []
    for field in schema:
        kind = field.type
        if pa.types.is_timestamp(kind):
            kind = TIMESTAMP
        elif pa.types.is_large_string(kind):
            kind = pa.string()
        elif pa.types.is_nested(kind):
            raise PenstockError(
                "P0203", f"{name}.{field.name} is {kind}: nested columns are no columns of the language"
            )
        fields.append(Field(field.name, kind))
    return Schema(tuple(fields))


def write_frame(frame: DataFrame, path: str) -> None:
    """A static DataFrame as a folder of parquet files, in the order of its partitions."""
    frame.coalesce(1).write.mode("overwrite").parquet(path)


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)
