"""Speech recognition: recordings and live sound become text."""
