"""Random graphs of ops whose results NumPy gives bit for bit: small whole numbers, so that every sum is exact."""

import numpy as np

import sluice as sl
import sluice.nn as nn

LIMIT = 2.0**15  # values are brought back below it, so that no product or sum of them is rounded


class ExactGraph(nn.Graph):
    """The program of a seed: the same calls each time it is traced."""

    def __init__(self, seed, placed=False, length=None):
        super().__init__(name=f"exact_{seed}")
        self._seed, self._placed, self._length = seed, placed, length
        self.weights = nn.ParameterList([nn.Parameter(self.numbers(shape)) for shape in ((4, 6), (6, 6), (6,))])
        self.state = nn.Module()
        self.state.register_buffer("total", sl.zeros(4, 6))

    def numbers(self, shape):
        draw = np.random.RandomState(self._seed + sum(shape))
        return sl.from_numpy(draw.randint(-3, 4, shape).astype(np.float32))

    def build(self, x, row, index):
        self.draw = np.random.RandomState(self._seed)
        pool = [x, row, *self.weights, self.state.total]
        for _ in range(self._length or 4 + self.draw.randint(30)):
            with self.place():
                pool.append(self.small(self.step(pool, index)))
        if self.draw.randint(2):
            with sl.no_grad():
                self.state.total.copy_(self.small(self.state.total + self.fit(pool[-1], (4, 6))))
        return [pool[-1], *(pool[self.draw.randint(len(pool))] for _ in range(self.draw.randint(1, 4)))]

    def place(self):
        choice = self.draw.randint(8) if self._placed else 7
        if choice == 0:
            return sl.stream("host")
        if choice == 1:
            return sl.device("sim:0")
        return sl.register_quota(2) if choice == 2 else sl.stream("compute")

    def pick(self, pool):
        return pool[-1 - self.draw.randint(min(8, len(pool)))]

    @staticmethod
    def small(x):
        """Whole numbers below LIMIT again, where a step may have left them."""
        return x if x.dtype is not sl.float32 else sl.remainder(sl.round(x), 61.0) - 30

    def fit(self, x, shape):
        """Some elements of x in another shape."""
        x = x.float().reshape(-1)
        n = int(np.prod(shape))
        while x.shape[0] < n:
            x = sl.cat([x, x.flip(0)])
        return x[:n].reshape(*shape)

    def step(self, pool, index):
        x = self.pick(pool)
        y = self.pick(pool)
        matrix = self.fit(x, (4, 6))
        number = self.draw.randint(24)
        if number < 8:  # of two operands
            y = self.fit(y, tuple(x.shape))
            return [lambda: x + y, lambda: x - y, lambda: x * y, lambda: sl.maximum(x.float(), y),
                    lambda: sl.minimum(x.float(), y), lambda: sl.where(x.float() > y, x.float(), y),
                    lambda: (x.float() <= y).float() + y, lambda: sl.remainder(x.float(), y.abs() + 1)][number]()
        return [lambda: x.float().relu(), lambda: -x.float(), lambda: x.float().abs() * 2, lambda: sl.sign(x.float()),
                lambda: sl.floor(x.float() / 4), lambda: matrix.sum(0), lambda: matrix.amax(1, keepdim=True) - matrix,
                lambda: matrix @ self.weights[1], lambda: (matrix @ matrix.t()).sum(1), lambda: matrix.t().contiguous(),
                lambda: sl.cat([matrix, self.fit(y, (2, 6))], 0), lambda: matrix.to(sl.int32).to(sl.float32) + 1,
                lambda: matrix.index_select(1, index), lambda: nn.functional.linear(matrix, self.weights[1], self.weights[2]),
                lambda: sl.cumsum(matrix, 1), lambda: nn.functional.pad(matrix, (1, 2, 0, 1)) + 1][number - 8]()


def inputs_of(seed, steps):
    """One dict of arrays per step, for any ExactGraph."""
    draw = np.random.RandomState(1000 + seed)
    return [{"x": draw.randint(-4, 5, (4, 6)).astype(np.float32), "row": draw.randint(-4, 5, (6,)).astype(np.float32),
             "index": draw.randint(0, 6, (5,))} for _ in range(steps)]
