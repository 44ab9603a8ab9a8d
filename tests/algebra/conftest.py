"""Plans of CQL text over the streams and relations of `fixtures/schema.cql`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.algebra import Algebra
from penstock.language.scripts import bind_query, bind_script


@pytest.fixture(scope="session")
def bind() -> Callable[[str], Algebra]:
    """Query text -> its plan as the binder made it."""
    catalog = bind_script((Path(__file__).parent / "fixtures" / "schema.cql").read_text()).catalog
    return lambda text: bind_query(text, catalog).root
