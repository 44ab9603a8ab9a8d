"""The Spark runtime: Spark distributes, shuffles, checkpoints and commits; the executor runs in its Python workers.

`job.py` assembles a job and drives it; `input/input_planner.py` decides what each round reads; `worker/data_source.py`,
`worker/ingest.py` and `worker/stage.py` run on the workers; `checkpoint/folder.py` is what all of them share on disk.
The only user of pyspark.
"""
