"""File formats of the FILES connector: one small class each, all with the contract of `base.FileFormat`."""

from __future__ import annotations

from penstock.connectors.formats.arrow import ArrowFormat
from penstock.connectors.formats.base import FileFormat
from penstock.connectors.formats.csv import CsvFormat
from penstock.connectors.formats.json import JsonFormat
from penstock.connectors.formats.packed import without_suffix
from penstock.connectors.formats.parquet import ParquetFormat

FORMATS: dict[str, type[FileFormat]] = {f.name: f for f in (CsvFormat, JsonFormat, ParquetFormat, ArrowFormat)}


def format_of(path: str) -> str | None:
    """Return the format of a path's extension, without a compression suffix; None for an unknown one."""
    name = without_suffix(path)
    return next((format_ for format_, class_ in FORMATS.items() if name.endswith(class_.extensions)), None)


__all__ = ["FORMATS", "FileFormat", "format_of"]
