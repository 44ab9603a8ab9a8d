"""What Spark's Python workers run: the reader, ingest, keyed stages, packets, and the job as it travels to them."""
