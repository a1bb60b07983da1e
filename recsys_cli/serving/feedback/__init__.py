"""Feedback: a durable log of events, their state in memory, and the table for the next training."""
