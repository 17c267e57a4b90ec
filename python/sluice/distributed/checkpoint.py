"""Checkpoints of several ranks, by torch.distributed.checkpoint's names: save, async_save and load; Checkpoints keeps the newest, and
export writes a model whole, for other programs.

    import sluice.distributed.checkpoint as dcp
    dcp.save({"model": model, "optimizer": optimizer}, "out/step-10")
"""

from sluice._checkpoint import Checkpoints, Saving, async_save, export, load, save

__all__ = ["Checkpoints", "Saving", "async_save", "export", "load", "save"]
