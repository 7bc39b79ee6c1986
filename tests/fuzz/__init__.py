"""Calls of `generate` with options drawn at random, as transformers and as mmspec decode them.

`python -m tests.fuzz --help` in the repository's root.
"""
