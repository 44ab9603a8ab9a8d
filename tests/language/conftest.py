"""What every test of the language builds on: a few declared sources."""

from __future__ import annotations

import pytest

from penstock.language import Catalog, bind_script

DECLARATIONS = """
CREATE STREAM s (a INT, b STRING, x DOUBLE, ts TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM t (a BIGINT, y DECIMAL(10,2), ts TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM n (a INT, tick INT) FROM MEMORY () TIMESTAMP BY tick UNIT SECOND;
CREATE RELATION r (a INT, name STRING) FROM MEMORY ();
CREATE RELATION u (a INT, op STRING, ts TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts OPERATION BY op;
"""


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return bind_script(DECLARATIONS).catalog
