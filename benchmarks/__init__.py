"""`make bench`: the same queries over the same files through Penstock and through Spark's own DataFrame API."""
