"""The command line: `penstock run`, `query`, `shell`, `check`, `explain` and `state`. The session does the work; this
package formats it.
"""
