"""Readers of the results that a run keeps: subscriptions with cursors, contents of relations, one-time queries over
them. Nothing here runs in a round: readers read the files of the result log.
"""
