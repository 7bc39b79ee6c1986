"""The benchmark contract, run."""
