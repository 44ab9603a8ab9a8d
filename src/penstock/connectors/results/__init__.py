"""The result log of a run: the answers of all queries INTO RESULTS, in one file a batch (`result_log.py` writes it)."""
