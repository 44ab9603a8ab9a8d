"""What every test of the language builds on: a few declared sources."""

from __future__ import annotations

import pytest
from plans import DECLARATIONS

from penstock.language.scripts import Catalog, bind_script


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return bind_script(DECLARATIONS).catalog
