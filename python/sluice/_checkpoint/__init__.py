"""Checkpoints of several ranks: each writes what it has, and any number of them reads what it needs (ADR 55)."""

from sluice._checkpoint.folder import Checkpoints
from sluice._checkpoint.reading import export, load
from sluice._checkpoint.writing import Saving, async_save, save

__all__ = ["Checkpoints", "Saving", "async_save", "export", "load", "save"]
