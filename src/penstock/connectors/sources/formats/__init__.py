"""File formats of the FILES connector: one small class each, all keeping the contract of `base.FileFormat`."""

from __future__ import annotations

from penstock.connectors.sources.formats.arrow import ArrowFormat
from penstock.connectors.sources.formats.base import FileFormat
from penstock.connectors.sources.formats.csv import CsvFormat
from penstock.connectors.sources.formats.json import JsonFormat
from penstock.connectors.sources.formats.parquet import ParquetFormat

FORMATS: dict[str, type[FileFormat]] = {f.name: f for f in (CsvFormat, JsonFormat, ParquetFormat, ArrowFormat)}
_COMPRESSED = (".gz", ".bz2", ".zst")


def format_of(path: str) -> str | None:
    """The format that a path's extension stands for, a compression suffix left out; None for an unknown one."""
    folded = path.lower()
    for suffix in _COMPRESSED:
        folded = folded.removesuffix(suffix)
    return next((name for name, format_ in FORMATS.items() if folded.endswith(format_.extensions)), None)


__all__ = ["FORMATS", "FileFormat", "format_of"]
