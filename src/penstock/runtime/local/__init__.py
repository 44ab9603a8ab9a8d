"""The local runtime: the executor driven in this process, EXPLAIN ANALYZE, static relations."""

from penstock.runtime.local.runtime import LocalResult, run_local

__all__ = ["LocalResult", "run_local"]
