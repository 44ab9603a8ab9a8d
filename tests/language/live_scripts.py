"""A small live system: the statements that declare it, and its catalog."""

from __future__ import annotations

from functools import cache

from penstock.language.commands import applied
from penstock.language.scripts import Catalog, bind_command, parse_script
from penstock.settings import Settings

STANDING = """
CREATE STREAM s (a INT, b STRING, ts TIMESTAMP) FROM HTTP () TIMESTAMP BY ts RETAIN 1 HOUR;
CREATE STREAM n (a INT, tick INT) FROM MEMORY () TIMESTAMP BY tick;
CREATE RELATION fixed (k INT, v STRING) FROM MEMORY ();
CREATE RELATION prices (item STRING, price DOUBLE, at BIGINT, op STRING, PRIMARY KEY (item))
  FROM MEMORY () TIMESTAMP BY at OPERATION BY op;
CREATE RELATION rates (name STRING, rate DECIMAL(8,2), at BIGINT, PRIMARY KEY (name)) FROM HTTP () TIMESTAMP BY at;
CREATE RELATION filed (a INT, ts TIMESTAMP) FROM FILES (path 'a.csv') TIMESTAMP BY ts;
CREATE RELATION stock (item STRING, n INT, op STRING, PRIMARY KEY (item)) FROM HTTP () SYSTEM TIME OPERATION BY op;
CREATE VIEW v AS SELECT a FROM s [RANGE 1 MINUTE];
CREATE VIEW w AS SELECT COUNT(*) AS c FROM v;
CREATE QUERY q INTO CONSOLE () START WARM WITH (weight 2) AS SELECT a FROM v;
CREATE QUERY p AS SELECT c FROM w;
CREATE QUERY e AS SELECT a FROM n;
"""


@cache
def standing_catalog() -> Catalog:
    """Return the catalog after `STANDING`, with the place of each statement as the id of its query."""
    catalog = Catalog()
    script = parse_script(STANDING)
    for number, statement in enumerate(script.statements):
        command, warnings = bind_command(statement, catalog, Settings(), script.source)
        assert warnings == ()
        catalog = applied(command, catalog, number)
    return catalog
