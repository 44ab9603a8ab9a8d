"""Bound scalar and aggregate expressions, and the table from SQL function to Arrow kernel."""
