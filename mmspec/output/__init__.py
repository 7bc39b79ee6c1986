"""Text in and out, without a model: formats, tables, the terminal, hypotheses read from files."""
