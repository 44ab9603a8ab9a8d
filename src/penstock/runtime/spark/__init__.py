"""The Spark runtime: Spark distributes, shuffles, checkpoints and commits; the executor runs in its Python workers.

`job.py` puts a job together and drives it; `feed.py` decides what each round reads; `source.py`, `ingest.py` and
`stage.py` are what runs on the workers; `folder.py` is what all of them share on disk. The only user of pyspark.
"""
