"""The benchmark contract, run: frozen settings, interleaved pairs, ratios with their spread."""
