"""Rewards at work: looked up, called where they can do no harm, read, weighted and counted."""
