"""Public tables of small related tasks, how methods are scored on them, and the methods: the parts of `practice.py`."""
