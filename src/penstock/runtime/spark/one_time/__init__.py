"""One-time queries that are too large for one process, each as a job of Spark beside the rounds."""
