"""What the tests of families share: small graphs of any number of rows."""

import numpy as np

import sluice as sl
import sluice.nn as nn


class Affine(nn.Graph):
    """Rows of x through a small net."""

    def __init__(self, dims=None, model=None, **kwargs):
        super().__init__(**kwargs)
        self.model = model or nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        self.traced = []
        if dims:
            self.config.set_dims(dims)

    def build(self, x):
        self.traced.append(tuple(x.shape))
        return self.model(x)


def rows(n, width=6, seed=0):
    return sl.from_numpy(np.random.default_rng(seed + n).standard_normal((n, width), np.float32))


def cached(size=10, enable_shared=True):
    @nn.Graph.with_dynamic_input_shape(size=size, enable_shared=enable_shared)
    class Cached(Affine):
        pass

    return Cached()
