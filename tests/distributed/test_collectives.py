"""Collectives on eager tensors against NumPy."""

import re

import pytest

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

NO_REDUCTION = ("is not defined; bool and complex numbers have no reduction (reduce view_as_real), and an average needs a "
                "floating dtype")

COLLECTIVES = """
dist.init()
assert dist.is_initialized() and (dist.get_rank(), dist.get_world_size(), dist.get_local_rank()) == (rank, size, rank)

def of(r, *shape, dtype=np.float32):  # what rank r has
    return np.asarray(np.arange(np.prod(shape)).reshape(shape) % 13 + 10 * r + 1, dtype=dtype)

def check(name, got, expected):
    expected = np.asarray(expected)
    assert tuple(got.shape) == expected.shape and got.numpy().dtype == expected.dtype, (name, got, expected)
    assert np.array_equal(got.numpy(), expected), (name, got, expected)

for dtype in (np.float32, np.float64, np.int64, np.int32, np.uint8):
    for shape in ((), (1,), (5,), (3, 4), (0, 2), (300, 70)):
        mine, all_of_them = of(rank, *shape, dtype=dtype), np.stack([of(r, *shape, dtype=dtype) for r in range(size)])
        for op, combine in (("sum", np.add), ("product", np.multiply), ("min", np.minimum), ("max", np.maximum)):
            x = sl.tensor(mine)
            dist.all_reduce(x, op)
            check(f"all_reduce {op}", x, combine.reduce(all_of_them, dtype=dtype))
        x = sl.tensor(mine)
        dist.reduce(x, size - 1)
        check("reduce", x, all_of_them.sum(0, dtype=dtype) if rank == size - 1 else mine)
        x = sl.tensor(mine)
        dist.broadcast(x, size - 1)
        check("broadcast", x, all_of_them[-1])
        parts = [sl.zeros(shape, dtype=sl.tensor(mine).dtype) for _ in range(size)]
        dist.all_gather(parts, sl.tensor(mine))
        for r in range(size):
            check("all_gather", parts[r], all_of_them[r])
        dist.gather(sl.tensor(mine), [p.zero_() for p in parts] if rank == 0 else None)
        for r in range(size if rank == 0 else 0):
            check("gather", parts[r], all_of_them[r])
        x = sl.tensor(mine) * 0
        dist.scatter(x, [sl.tensor(of(10 + r, *shape, dtype=dtype)) for r in range(size)] if rank == 0 else None)
        check("scatter", x, of(10 + rank, *shape, dtype=dtype))
        lists = [[of(s * 2 + r, *shape, dtype=dtype) for r in range(size)] for s in range(size)]  # rank s has lists[s]
        dist.reduce_scatter(x, [sl.tensor(t) for t in lists[rank]])
        check("reduce_scatter", x, np.stack([lists[s][rank] for s in range(size)]).sum(0, dtype=dtype))
        dist.all_to_all(parts, [sl.tensor(t) for t in lists[rank]])
        for r in range(size):
            check("all_to_all", parts[r], lists[r][rank])

x = sl.zeros(2 * size, 3)
dist.all_gather_into_tensor(x, sl.tensor(of(rank, 2, 3)))
check("all_gather_into_tensor", x, np.concatenate([of(r, 2, 3) for r in range(size)]))
x = sl.zeros(2, 3)
dist.reduce_scatter_tensor(x, sl.tensor(of(rank, 2 * size, 3)))
check("reduce_scatter_tensor", x, sum(of(r, 2 * size, 3) for r in range(size))[2 * rank:2 * rank + 2])
x = sl.zeros(2 * size, 3)
dist.all_to_all_single(x, sl.tensor(of(rank, 2 * size, 3)))
check("all_to_all_single", x, np.concatenate([of(r, 2 * size, 3)[2 * rank:2 * rank + 2] for r in range(size)]))

# averages, low precision, NaN
x = sl.tensor(of(rank, 7))
dist.all_reduce(x, dist.ReduceOp.AVG)
np.testing.assert_allclose(x.numpy(), np.mean([of(r, 7) for r in range(size)], axis=0), rtol=1e-6)
for dtype in (sl.bfloat16, sl.float16):
    x = sl.ones(9, dtype=dtype)
    dist.all_reduce(x)
    assert x.dtype == dtype and (x.float().numpy() == size).all()
x = sl.tensor([1.0, float("nan") if rank == 0 else 2.0])
dist.all_reduce(x, dist.ReduceOp.MAX)
assert x.numpy()[0] == 1 and np.isnan(x.numpy()[1])

# bool travels wherever nothing is added up
flags = np.array([[r != s for s in range(size)] for r in range(size)])
parts = [sl.zeros(size, dtype=sl.bool) for _ in range(size)]
dist.all_gather(parts, sl.tensor(flags[rank]))
for r in range(size):
    check("all_gather of bool", parts[r], flags[r])
x = sl.tensor(flags[rank])
dist.broadcast(x, size - 1)
check("broadcast of bool", x, flags[-1])

# views: only what they show changes
whole = sl.tensor(of(rank, 6, 4))
dist.all_reduce(whole[:, 1])
expected = of(rank, 6, 4)
expected[:, 1] = sum(of(r, 6, 4)[:, 1] for r in range(size))
check("view", whole, expected)
t = sl.tensor(of(rank, 3, 5)).T
dist.broadcast(t, 0)
check("transposed", t, of(0, 3, 5).T)

# a parameter's gradient; the parameter itself keeps its history
w = sl.nn.Parameter(sl.ones(4))
(w * (rank + 1)).sum().backward()
dist.all_reduce(w.grad)
check("gradient", w.grad, np.full(4, size * (size + 1) / 2, np.float32))
dist.broadcast(w, 0)
assert w.requires_grad and w.is_leaf

# point to point
if size > 1 and rank < 2:
    x = sl.tensor(of(rank, 4))
    if rank == 0:
        dist.send(x, 1, tag=7); dist.recv(x, 1)
    else:
        y = sl.zeros(4); dist.recv(y, 0, tag=7); dist.send(y * 2, 0)
    if rank == 0:
        check("there and back", x, of(0, 4) * 2)
dist.barrier()
dist.destroy()
assert not dist.is_initialized()
print("ok")
"""


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_every_collective_equals_numpy(ranks, n):  # GT-25
    assert ranks(n, COLLECTIVES) == [["ok"]] * n


def test_every_collective_under_way_equals_numpy(ranks):
    works = re.sub(r"dist\.(all_\w+|reduce\w*|broadcast|gather|scatter|barrier)\((.*?)\)$", r"assert dist.\1(\2, async_op=True).wait()",
                   COLLECTIVES.replace("dist.barrier()", "dist.barrier(async_op=False)"), flags=re.MULTILINE)
    assert works.count("async_op=True") >= 18
    assert ranks(2, works.replace("async_op=False, ", "")) == [["ok"]] * 2


def test_works_run_in_order_beside_the_program(ranks):
    out = ranks(2, """
    dist.init()
    x, y = sl.full((3,), 1.0), sl.full((3,), 2.0)
    if rank == 0:
        works = [dist.all_reduce(x, async_op=True), dist.all_reduce(x, "product", async_op=True), dist.broadcast(y, 1, async_op=True)]
        assert works[0].began is None or not works[0].is_completed()  # rank 1 has not come
        let_go()
    else:
        wait_to_go()
        works = [dist.all_reduce(x, async_op=True), dist.all_reduce(x, "product", async_op=True), dist.broadcast(y, 1, async_op=True)]
    z = sl.ones(3)
    dist.all_reduce(z)  # behind them
    assert all(w.is_completed() and w.wait() and w.exception() is None for w in works)
    assert works[0].began <= works[0].ended <= works[1].began <= works[1].ended <= works[2].began
    print(x.tolist(), y.tolist(), z.tolist())
    bad = dist.all_reduce(sl.ones(2, dtype=sl.bool), async_op=True)
    try:
        bad.wait()
    except TypeError as e:
        print(e)
    dist.all_reduce(z)
    late = dist.all_reduce(z, async_op=True)
    dist.destroy()  # lets what is under way end
    print(late.is_completed(), z.tolist())
    """)
    assert [lines[0] for lines in out] == ["[4.0, 4.0, 4.0] [2.0, 2.0, 2.0] [2.0, 2.0, 2.0]"] * 2
    assert [lines[1] for lines in out] == [f"all_reduce: sum of bool {NO_REDUCTION}"] * 2
    assert [lines[2] for lines in out] == ["True [8.0, 8.0, 8.0]"] * 2


def test_wrong_arguments_are_named_and_leave_the_job_usable(ranks):
    out = ranks(2, """
    def error(f, *arguments, **options):
        try:
            f(*arguments, **options)
        except sl.Error as e:
            print(f"{type(e).__name__}: {str(e).splitlines()[0].split('  (')[0]}")
    error(dist.get_rank)
    error(dist.all_reduce, sl.ones(2))
    dist.init()
    error(dist.init)
    error(dist.all_reduce, sl.ones(2), "median")
    error(dist.all_reduce, sl.ones(2, dtype=sl.int64), dist.ReduceOp.AVG)
    error(dist.all_reduce, sl.ones(2, dtype=sl.bool))
    error(dist.all_reduce, sl.ones(2).to("sim:0"))
    error(dist.broadcast, sl.ones(2), 2)
    error(dist.send, sl.ones(2), rank)
    error(dist.all_gather, [sl.ones(2)], sl.ones(2))
    error(dist.all_gather, [sl.ones(2), sl.ones(3)], sl.ones(2))
    error(dist.reduce_scatter_tensor, sl.ones(2), sl.ones(3))
    error(dist.all_to_all_single, sl.ones(3), sl.ones(3))
    error(dist.gather, sl.ones(2), [sl.ones(2)] * 2 if rank == 1 else [])
    dist.barrier()
    """)
    assert out[0] == [
        "RuntimeError: get_rank: the ranks have not met; call sluice.distributed.init() first",
        "RuntimeError: all_reduce: the ranks have not met; call sluice.distributed.init() first",
        "RuntimeError: distributed.init: called twice; call destroy() first",
        "ValueError: distributed: op is 'median'; it must be sum, product, min, max or average",
        f"TypeError: all_reduce: average of int64 {NO_REDUCTION}",
        f"TypeError: all_reduce: sum of bool {NO_REDUCTION}",
        "NotImplementedError: all_reduce: the tensor is on sim:0; collectives of tensors run in host memory, use tensor.cpu()",
        "IndexError: broadcast: rank 2 is not in the group; ranks are 0 to 1",
        "ValueError: send: rank 0 is this rank itself; it must be another",
        "ValueError: all_gather: tensor_list has 1 tensors; it must be a list of 2, one for each rank",
        "ValueError: all_gather: tensor_list[1] is float32 (3,); it must be float32 (2,) like the other tensors",
        "ValueError: reduce_scatter_tensor: the whole is float32 (3,), a part is float32 (2,); dimension 0 of the whole must be 2 times the "
        "part's, for that many ranks",
        "ValueError: all_to_all: dimension 0 is 3; it must be divisible by the 2 ranks",
        "ValueError: gather: gather_list has 0 tensors; it must be a list of 2, one for each rank",
    ]
    assert out[1][-1] == "ValueError: gather: gather_list is given; only rank 0 may give one"


def test_results_are_the_same_bits_in_every_rank(ranks):
    out = ranks(4, """
    import hashlib
    dist.init()
    sl.manual_seed(rank)
    for n in (1, 10, 1000, 100003):
        x = sl.randn(n)
        dist.all_reduce(x)
        print(hashlib.sha256(x.numpy().tobytes()).hexdigest())
    """)
    assert len(set(map(tuple, out))) == 1 and len(set(out[0])) == 4
