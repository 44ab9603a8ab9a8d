"""The server's doors: tokens, limits, what remote users may reach, and HTTP.

What is behind the doors is `service.py`, the contract that the doors use and that `control` fulfils. No door knows
Spark.
"""
