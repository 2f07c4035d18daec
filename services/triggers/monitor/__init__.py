"""What fires triggers: the clock, the ends of runs, the activity feed; and what carries firings out."""
