"""What a run says of itself: statistics, totals, a trace by round, by codebook, by class."""
