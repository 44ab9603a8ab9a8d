"""Running a plan: the executor of a stage, ingest, heartbeats, wall clock, meters, answers."""
