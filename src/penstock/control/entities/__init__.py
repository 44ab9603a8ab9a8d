"""Entities and control relations [cidr 6.1]: what a system reports of itself, as relations of the schema `penstock`."""
