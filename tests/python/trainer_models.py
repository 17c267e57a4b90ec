"""What configurations of the trainer's tests name."""

import numpy as np

from sluice import data, nn


def rows(n=48, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    return data.arrays(x, (x[:, :3].sum(1) > 0).astype(np.int64) + (x[:, 3] > 1), seed=seed)


def shuffled(n=48, seed=3):
    return rows(n, seed).shuffle()


class Net(nn.Module):
    def __init__(self, width=8, dropout=0.0):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(6, width), nn.Linear(width, 3), nn.Dropout(dropout)

    def forward(self, x):
        return self.down(self.drop(self.up(x).relu()))


def config(out, **changes):
    """A small training, with entries of it changed by dotted names."""
    from sluice.trainer import load

    made = {"model": {"_target_": "trainer_models.Net"}, "data": {"_target_": "trainer_models.shuffled"},
            "loss": {"_target_": "sluice.nn.functional.cross_entropy", "_partial_": True},
            "optimizer": {"_target_": "sluice.optim.Adam", "lr": 0.01}, "out": str(out),
            "train": {"steps": 12, "batch": 8, "log_every": 4}, "parallel": {"plan": {"up": "colwise", "down": "rowwise"}}}
    from omegaconf import OmegaConf

    from sluice.trainer import Config

    whole = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config()), OmegaConf.create(made)))
    return load(None, [f"{name}={value}" for name, value in changes.items()], whole)
