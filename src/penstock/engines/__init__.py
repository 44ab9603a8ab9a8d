"""The engines that run the queries of a control, each behind the contract `control/engine.py`."""
