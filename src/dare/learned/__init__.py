"""Rewards given by a model: reward models, preference models, process reward models and judges behind an endpoint."""
