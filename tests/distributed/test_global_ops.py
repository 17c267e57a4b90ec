"""Single ops on global tensors: what lies on two ranks gives what one process computes."""

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

BEGIN = """
from sluice import nn
dist.init()
S, B, P = sl.sbp.split, sl.sbp.broadcast, sl.sbp.partial_sum
W = sl.placement("cpu", [0, 1])

def lay(array, sbp):  # an array that all ranks have
    return sl.tensor(array).to_global(W, B).to_global(sbp=sbp)

class Applied(nn.Graph):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.config.set_cores(1)
    def build(self, *inputs):
        return self.function(*inputs)
"""

FLIP = BEGIN + """
x = np.arange(24, dtype=np.float32).reshape(4, 6)
for dims in ([0], [1], [0, 1]):
    for sbp in (S(0), S(1), B, P):
        graph = Applied(lambda x: sl.flip(x, dims))
        y = graph(lay(x, sbp))
        assert np.array_equal(y.numpy(), np.flip(x, dims)), (dims, sbp)
graph = Applied(lambda x: sl.flip(x, [0]).to_global(W, S(0)) * 2)  # a rank needs what the other one has
assert np.array_equal(graph(lay(x, S(0))).numpy(), 2 * x[::-1])
assert {"all_gather", "all_to_all"} & {k["op"] for k in graph.plan["kernels"]}
print("same")
"""


def test_flip_along_a_split_axis_is_the_whole_flipped(ranks):  # OPS-46
    assert ranks(2, FLIP) == [["same"]] * 2


LIKE = BEGIN + """
x = sl.tensor(np.full((3, 4), rank, np.float32)).to_global(W, S(0))
assert x.shape == (6, 4)
for like, value in ((sl.zeros_like, 0), (sl.ones_like, 1), (lambda x: sl.full_like(x, 7), 7)):
    y = like(x)
    assert y.is_global and y.sbp == (S(0),) and y.placement == W and y.shape == (6, 4) and y.dtype is sl.float32
    assert y.to_local().shape == (3, 4) and (y.to_local() == value).all()
y = sl.zeros_like(x, dtype=sl.int64, requires_grad=False)
assert y.sbp == (S(0),) and y.dtype is sl.int64 and y.to_local().shape == (3, 4) and not y.to_local().any()
for sbp in (S(1), B):
    assert sl.ones_like(x.to_global(sbp=sbp)).sbp == (sbp,)
total = sl.ones_like(x.to_global(sbp=P), dtype=sl.float16)
assert total.sbp == (P,) and total.dtype is sl.float16 and total.to_global(sbp=B).to_local().tolist() == [[1] * 4] * 6
graph = Applied(lambda x: (sl.zeros_like(x) + x, sl.ones_like(x) * 3))
a, b = graph(x)
assert a.tolist() == [[0] * 4] * 3 + [[1] * 4] * 3 and b.tolist() == [[3] * 4] * 6
print("same")
"""


def test_what_is_like_a_global_tensor_lies_as_it(ranks):  # OPS-47
    assert ranks(2, LIKE) == [["same"]] * 2


IN_PLACE = BEGIN + """
class Sums(nn.Module):
    def __init__(self, sbp):
        super().__init__()
        self.register_buffer("sums", lay(np.zeros((4, 6), np.float32), sbp))
    def forward(self, y):
        self.sums.add_(y)
        self.sums.mul_(2)
        return y.sum()

y = np.arange(24, dtype=np.float32).reshape(4, 6)
for sbp in (S(0), S(1), B):
    module = Sums(sbp)
    before = module.sums
    memory = before.to_local().data_ptr()
    class Run(nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module
            self.config.set_cores(1)
        def build(self, y):
            return self.module(y)
    graph, expected = Run(), np.zeros_like(y)
    for other in (sbp, sbp, sbp):
        assert graph(lay(y, other)).item() == y.sum()
        expected = (expected + y) * 2
    graph.synchronize()
    assert module.sums is before and before.sbp == (sbp,)
    assert before.to_local().data_ptr() == memory  # on each rank
    assert np.array_equal(before.to_global(sbp=B).to_local().numpy(), expected)
print("same")
"""


def test_writes_to_global_tensors_are_in_place(ranks):  # OPS-48
    assert ranks(2, IN_PLACE) == [["same"]] * 2


GATHER = BEGIN + """
random = np.random.default_rng(0)
x = random.integers(-8, 8, (4, 5, 6)).astype(np.float32)
at = random.integers(0, 5, (4, 3))
picked = np.stack([x[b, at[b]] for b in range(4)])
sums = np.zeros((4, 7, 6), np.float32)
ids = random.integers(0, 7, (4, 5))
for b in range(4):
    np.add.at(sums[b], ids[b], x[b])
for sbp in (S(0), S(2), B, P):  # of the data; indices are split with the batch, or whole
    other = S(0) if sbp == S(0) else B
    got = Applied(sl.batch_gather)(lay(x, sbp), lay(at, other))
    assert np.array_equal(got.numpy(), picked), sbp
    got = Applied(lambda x, ids: sl.unsorted_batch_segment_sum(x, ids, 7))(lay(x, sbp), lay(ids, other))
    assert np.array_equal(got.numpy(), sums), sbp
empty = sl.arange(3, 3).to_global(W, B)  # OPS-45
assert empty.shape == (0,) and empty.to_local().shape == (0,) and empty.dtype is sl.int64
assert Applied(lambda e: (e * 2 + 1, e.float().sum()))(empty)[1].item() == 0
print("same")
"""


def test_gathers_and_segment_sums_of_parts_are_numpys(ranks):  # OPS-43, OPS-45
    assert ranks(2, GATHER) == [["same"]] * 2
