"""STREAM's own example queries can all be read and bound."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from penstock.language.scripts import bind_query, bind_script

ROOT = Path(__file__).resolve().parents[2]
SUITE = Path(os.environ.get("PENSTOCK_CONFORMANCE", ROOT.parent / "shared" / "conformance" / "stream"))
EXAMPLES = SUITE / "cql-queries.txt"

DECLARED = """
CREATE STREAM S (A INTEGER, B INTEGER, C FLOAT, D CHAR(10), ts BIGINT) FROM MEMORY () TIMESTAMP BY ts;
CREATE RELATION R (A INTEGER, B INTEGER, C FLOAT, D CHAR(10)) FROM MEMORY ();
"""


def _queries() -> list[str]:
    if not EXAMPLES.is_file():
        return []
    text = re.sub(r"^\s*#.*$", "", EXAMPLES.read_text(), flags=re.MULTILINE)
    return [" ".join(query.split()) for query in text.split(";") if query.strip()]


@pytest.mark.skipif(not EXAMPLES.is_file(), reason="STREAM's examples are not on this machine")
def test_there_are_examples() -> None:
    assert len(_queries()) > 20


@pytest.mark.parametrize("query", _queries())
def test_example(query: str) -> None:
    bind_query(query, bind_script(DECLARED).catalog)
