"""What Spark's Python workers run: ingest, keyed stages, packets."""
