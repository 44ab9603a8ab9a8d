"""Penstock: a data stream management system on Apache Spark. Continuous queries in CQL over streams and relations."""

__version__ = "0.1.0"

from penstock.expressions.user import aggregate, function

__all__ = ["aggregate", "function"]
