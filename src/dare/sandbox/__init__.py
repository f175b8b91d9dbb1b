"""Run programs nobody has read: limits, back ends, and judging a program by tests it cannot see or touch."""
