"""What the tests of data share: both libraries, and outcomes compared."""

import torch
import torch.utils.data as theirs

import sluice as sl
import sluice.utils.data as ours

BOTH = [(sl, ours), (torch, theirs)]


def plain(value):
    """A nest without tensors, with the types of its containers."""
    if isinstance(value, (sl.Tensor, torch.Tensor)):
        return ("tensor", str(value.dtype).rpartition(".")[2], value.tolist())
    if isinstance(value, dict):
        return type(value).__name__, {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(v) for v in value]
    return value


def outcome(f):
    """What a call gives: its value, or the builtin type of its error."""
    try:
        return plain(f())
    except Exception as error:
        kinds = (AssertionError, NotImplementedError, IndexError, KeyError, TypeError, ValueError, AttributeError, RuntimeError)
        return next(kind for kind in kinds if isinstance(error, kind))


def assert_same_outcomes(f):
    sl.manual_seed(7)
    torch.manual_seed(7)
    a, b = (outcome(lambda: f(lib, data)) for lib, data in BOTH)
    assert a == b
    assert sl.rand(2).tolist() == torch.rand(2).tolist()  # as much was drawn
    return a


class Squares:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i * i


def stream(data, n=10, length=None):
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(n))

    if length is not None:
        Stream.__len__ = lambda self: length
    return Stream()


def rows(lib, n=10):
    return lib.arange(float(3 * n)).reshape(n, 3), lib.arange(n)


def generator(lib, seed=3):
    g = lib.Generator()
    g.manual_seed(seed)
    return g
