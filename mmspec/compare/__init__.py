"""The same input decoded by others in the same process: equal output, and how long each took."""
