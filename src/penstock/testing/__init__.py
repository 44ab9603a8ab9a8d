"""The test kit: the oracle, text cases, random cases. Public, so that users can test their own queries.

from penstock.testing import run_case
run_case("my_query.cqltest")
"""

from penstock.testing.cases import Case, CaseRun, check_case, parse_case, run_case
from penstock.testing.compare import assert_same
from penstock.testing.oracle import Answer, run_oracle

__all__ = ["Answer", "Case", "CaseRun", "assert_same", "check_case", "parse_case", "run_case", "run_oracle"]
