"""Speech and music from codec tokens: one file per family of models."""
