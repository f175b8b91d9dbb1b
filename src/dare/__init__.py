"""DARE: post-training and evaluation of diffusion language models."""

__version__ = "0.1.0"
