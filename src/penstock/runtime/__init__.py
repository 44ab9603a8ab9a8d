"""Runtimes: what drives the executor. `local` in this process; `spark` on Apache Spark."""
