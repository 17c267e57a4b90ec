"""Helpers around training: torch.utils."""

from sluice.utils import data as data
