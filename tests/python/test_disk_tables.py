"""Tables of embeddings in files that are larger than their cache, against nn.Embedding in memory: the same bits."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import sluice as sl
from sluice import nn
from sluice.data import DiskTable

ROWS, DIM = 400, 6
ADAGRAD = {"optimizer": "adagrad", "lr": 0.1}


def cache_of(rows, width=DIM * 2):
    return rows * (width * 4 + 40)


def made(path, rows=ROWS, dim=DIM, values=None, cache=None, **options):
    DiskTable.make(path, rows, dim, **{**ADAGRAD, **options})
    table = DiskTable(path, cache=cache or cache_of(64))
    if values is not None:
        table.write(np.arange(rows), values)
    return table


@pytest.fixture
def values():
    return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype("float32")


def batches(n=30, size=(4, 5), rows=ROWS, seed=1):
    draw = np.random.default_rng(seed)
    return [(np.minimum(draw.zipf(1.3, size) - 1, rows - 1), draw.normal(size=(size[0], 2)).astype("float32")) for _ in range(n)]


def net():
    sl.manual_seed(3)
    return nn.Sequential(nn.Linear(DIM, 8), nn.ReLU(), nn.Linear(8, 2))


def loss_of(model, table, ids, y):
    return (model(nn.functional.embedding(sl.tensor(ids), table).mean(1)) - sl.tensor(y)).square().mean()


@pytest.mark.parametrize("options", [{"optimizer": "sgd", "lr": 0.1}, ADAGRAD, {**ADAGRAD, "lr_decay": 0.01, "eps": 1e-8}],
                         ids=lambda o: "-".join(o))
@pytest.mark.parametrize("depth", [0, 2])
def test_training_has_the_bits_of_a_table_in_memory(tmp_path, values, options, depth):  # GT-28
    dense, model = nn.Parameter(sl.tensor(values)), net()
    rates = {k: v for k, v in options.items() if k != "optimizer"}
    kind = {"sgd": sl.optim.SGD, "adagrad": sl.optim.Adagrad}[options["optimizer"]]
    optimizers = [kind([dense], **rates), sl.optim.SGD(model.parameters(), lr=0.05)]
    expected = []
    for ids, y in batches():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = loss_of(model, dense, ids, y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        expected.append(loss.item())

    table = made(tmp_path / "t.rows", values=values, **options)
    model, got = net(), []
    optimizer = sl.optim.SGD(model.parameters(), lr=0.05)
    for (ids, y), found in table.ahead(batches(), ids=lambda batch: batch[0], depth=depth):
        optimizer.zero_grad()
        loss = loss_of(model, found.rows, found.index.numpy(), y)
        loss.backward()
        found.update()
        optimizer.step()
        got.append(loss.item())
    assert got == expected
    told = table.stats()
    assert told["misses"] > told["slots"] and told["written"] > 0 and told["hits"] > 0 and told["pinned"] == 0
    # In pieces, since all rows have no room in the cache.
    assert np.concatenate([table.read(part) for part in np.split(np.arange(ROWS), 10)]).tobytes() == dense.detach().numpy().tobytes()
    table.close()
    with DiskTable(tmp_path / "t.rows", cache=cache_of(64), read_only=True) as again:
        assert again.read(np.arange(50)).tobytes() == dense.detach().numpy()[:50].tobytes()


def test_a_graph_takes_rows_and_gives_their_gradient(tmp_path, values):
    class Train(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.05))

        def build(self, rows, index, y):
            rows.requires_grad_()
            loss = (self.model(nn.functional.embedding(index, rows).mean(1)) - y).square().mean()
            loss.backward()
            return loss, rows.grad

    dense, model = nn.Parameter(sl.tensor(values)), net()
    optimizers, expected = [sl.optim.Adagrad([dense], lr=0.1), sl.optim.SGD(model.parameters(), lr=0.05)], []
    for ids, y in batches():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = loss_of(model, dense, ids, y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        expected.append(loss.item())
    table, graph, got = made(tmp_path / "t.rows", values=values), Train(net()), []
    for (_, y), found in table.ahead(batches(), ids=lambda batch: batch[0], padded=20):
        loss, grad = graph(found.rows.detach(), found.index, sl.tensor(y))
        found.update(grad)
        got.append(loss.item())
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    np.testing.assert_allclose(table.read(np.arange(40)), dense.detach().numpy()[:40], rtol=1e-4, atol=1e-6)
    table.close()


def test_rows_come_while_the_batch_before_is_computed(tmp_path, values):
    """The next batches' rows are read before their batch is asked for, and given out as the update before has left them."""
    table = made(tmp_path / "t.rows", values=values, optimizer="sgd", lr=1.0)
    asked = []

    def ids():
        for batch in ([1, 2], [2, 3], [3, 1]):
            asked.append(batch)
            yield np.array(batch)

    before = table.stats()["misses"]
    steps = table.ahead(ids(), depth=2)
    _, found = next(steps)
    assert len(asked) == 3
    table._disk.submit(lambda: None).result()  # it works in order: all before that is done
    assert table.stats()["misses"] + table.stats()["hits"] > before and table.stats()["pinned"] == 3
    found.update(sl.ones(2, DIM))
    (_, second), expected = next(steps), values[[2, 3]]
    expected[0] -= 1
    assert second.rows.detach().numpy().tobytes() == expected.tobytes()
    second.release()
    steps.close()
    assert table.stats()["pinned"] == 0
    table.close()


def test_a_checkpoint_is_the_table_of_its_moment(tmp_path, values):
    def run(table, some):
        model = net()
        for (ids, y), found in table.ahead(some, ids=lambda batch: batch[0]):
            loss_of(model, found.rows, found.index.numpy(), y).backward()
            found.update()

    def content(path):
        with DiskTable(path, cache=cache_of(200), read_only=True) as table:
            return b"".join(table.read(part).tobytes() for part in np.split(np.arange(ROWS), 4))

    steps = batches()
    table = made(tmp_path / "t.rows", values=values)
    run(table, steps[:15])
    table.save(tmp_path / "half.rows")
    half = content(tmp_path / "half.rows")
    run(table, steps[15:])
    table.close()
    assert content(tmp_path / "half.rows") == half != content(tmp_path / "t.rows")
    with DiskTable(tmp_path / "half.rows", cache=cache_of(64)) as resumed:
        run(resumed, steps[15:])
    assert content(tmp_path / "half.rows") == content(tmp_path / "t.rows")  # the optimizer's state was there, too
    assert sorted(p.name for p in tmp_path.iterdir()) == ["half.rows", "t.rows"]


def test_zeros_take_no_room(tmp_path):
    path = tmp_path / "large.rows"
    with made(path, rows=50_000_000, dim=16, cache="1MiB") as table:  # 6.4 GB
        ids = np.array([0, 7, 49_999_999])
        table.write(ids, np.arange(48, dtype="float32").reshape(3, 16))
        assert not table.read([123_456]).any()
        table.save(tmp_path / "copy.rows")
    for name in ("large.rows", "copy.rows"):
        assert os.stat(tmp_path / name).st_size > 6.4e9 and os.stat(tmp_path / name).st_blocks * 512 < 1 << 20
        with DiskTable(tmp_path / name, cache="1MiB", read_only=True) as table:
            assert table.read(ids).tobytes() == np.arange(48, dtype="float32").tobytes()


@pytest.mark.soak
def test_a_table_of_ten_gib_in_a_cache_of_512_mib(tmp_path, count, repetitions):
    """Random rows against a function of their numbers, with the memory that the process takes; in a child, whose peak is its own."""
    steps = repetitions(2, 60)
    code = f"""
import sys
import numpy as np
import sluice as sl
from sluice.data import DiskTable
def memory(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
DiskTable.make(sys.argv[1], 40 << 20, 64, optimizer="sgd", lr=1.0)
before = memory("VmRSS")
def content(ids):
    return ((ids[:, None] * 64 + np.arange(64)) % 8191).astype("float32")
draw = np.random.default_rng(0)
with DiskTable(sys.argv[1], cache="512MiB") as table:
    seen = []
    for step in range({steps}):
        ids = np.unique(draw.integers(0, (40 << 20) // 16, 2_500)[:, None] * 16 + np.arange(16))  # a page of the disk each
        table.write(ids, content(ids))
        seen.append(ids)
        old = seen[draw.integers(len(seen))][:20_000]
        with table.lookup(old) as found:
            assert (found.rows.detach().numpy()[found.index.numpy()] == content(old)).all()
    for ids, found in table.ahead([s[:5_000] for s in seen]):
        found.update(sl.ones(5_000, 64))
    for ids in seen:
        assert (table.read(ids[:100])[0] <= content(ids[:100])[0] - 1).all()
    print(table.stats(), (memory("VmHWM") - before) >> 10)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t.rows")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    grown = int(done.stdout.split()[-1])
    print(done.stdout)
    assert os.stat(tmp_path / "t.rows").st_size > 10 << 30
    assert grown < 900  # MiB: the cache, its lists, and a batch
    count(f"a cache of 512 MiB took {grown} MiB; looked up", steps * 65_000, "rows")


def test_a_process_that_is_killed_leaves_a_file_that_says_so(tmp_path, values):
    path = tmp_path / "t.rows"
    made(path, values=values).close()
    code = ("import sys; from sluice.data import DiskTable; t = DiskTable(sys.argv[1], cache=100000); t.write([5], [[1.0] * 6]);"
            "t.save(sys.argv[1] + '.saved'); print('ready', flush=True); sys.stdin.read()")
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    with pytest.raises(RuntimeError, match="t.rows: is open elsewhere, and one of the two writes"):
        DiskTable(path)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with pytest.raises(RuntimeError, match=r"t.rows: was not closed.*take its last checkpoint, or open it with recover=True"):
        DiskTable(path)
    with DiskTable(tmp_path / "t.rows.saved", cache="1MiB") as saved:
        assert (saved.read([5]) == 1).all() and (saved.read([6]) == values[6]).all()
    DiskTable(path, recover=True, cache="1MiB").close()
    DiskTable(path, cache="1MiB").close()


def test_a_full_disk_is_an_error_that_loses_nothing_silently(tmp_path, values):
    """A limit of the process takes the place of the disk's end."""
    code = f"""
import resource, signal, sys
import numpy as np
from sluice.data import DiskTable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
table = DiskTable(sys.argv[1], cache={cache_of(64)})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096 + 48 * 100, resource.RLIM_INFINITY))
try:
    for part in np.split(np.arange({ROWS}), 20):
        table.write(part, np.ones((20, {DIM}), "float32"))
except OSError as error:
    print(error)
table.close()
"""
    path = tmp_path / "t.rows"
    made(path, values=values).close()
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert "t.rows: rows " in done.stdout and "cannot be written: File too large" in done.stdout
    with pytest.raises(RuntimeError, match="was not closed"):
        DiskTable(path)


def test_bad_uses_are_named(tmp_path, values):
    path = tmp_path / "t.rows"
    for options, said in (({"rows": 0}, "rows: got 0; must be an int of at least 1"), ({"dim": 1.5}, "dim: got 1.5"),
                          ({"optimizer": "adam"}, "optimizer: got 'adam'; must be one of sgd, adagrad"),
                          ({"momentum": 0.9}, "adagrad has no option 'momentum' here; it has lr, "),
                          ({"lr": -1.0}, "learning rate"), ({"initial_accumulator_value": 0.5}, "must be 0")):
        with pytest.raises((ValueError, NotImplementedError), match=said):
            made(path, **options)
        assert not path.exists()
    table = made(path, values=values)
    with pytest.raises(FileExistsError, match="t.rows: is there already"):
        DiskTable.make(path, 3, 3)
    for ids, said in ((np.array([], int), "at least one integer"), (np.array([0.5]), "at least one integer"), ([-1], "got -1; must be from 0"),
                      ([3, ROWS], f"got {ROWS}; must be from 0 to {ROWS - 1}")):
        with pytest.raises((ValueError, IndexError), match=said):
            table.lookup(ids)
    with pytest.raises(MemoryError, match="a batch looks up 65 rows, of which 65 are on the disk, and 64 of the 64 slots"):
        made(tmp_path / "u.rows").lookup(np.arange(65))
    found = table.lookup([1, 2])
    with pytest.raises(RuntimeError, match="the rows have no gradient"):
        found.update()
    with pytest.raises(ValueError, match=r"a gradient of shape \(3, 6\); must be \(2, 6\)"):
        found.update(sl.ones(3, 6))
    found.update(sl.ones(2, 6))
    with pytest.raises(RuntimeError, match="were released; look them up again"):
        found.update(sl.ones(2, 6))
    with pytest.raises(ValueError, match="different ids"):
        table.write([1, 1], np.ones((2, DIM)))
    with pytest.raises(ValueError, match="is the table's own file"):
        table.save(path)
    with pytest.raises(OSError, match="nowhere/x.rows: cannot be written: No such file"):
        table.save(tmp_path / "nowhere" / "x.rows")
    with pytest.raises(ValueError, match="depth: got -1"):
        table.ahead([], depth=-1)
    table.close()
    table.close()
    with pytest.raises(RuntimeError, match="lookup: the table was closed"):
        table.lookup([1])
    with pytest.raises(ValueError, match="a cache of 10 bytes; a row takes 88"):
        DiskTable(path, cache=10)
    with DiskTable(path, cache="1MiB", read_only=True) as reader, pytest.raises(RuntimeError, match="read_only=True"):
        reader.write([1], np.ones((1, DIM)))


def test_damaged_files_are_refused(tmp_path, values):
    path = tmp_path / "t.rows"
    made(path, values=values).close()
    whole = path.read_bytes()
    header = json.loads(whole[:4096].rstrip(b"\0"))
    for damaged, said in ((b"", "is no file of a DiskTable"), (whole[:100], "is no file"), (whole[:-4], "bytes; must have"),
                          (b"\xff" + whole[1:], "is no file"),
                          *((json.dumps({**header, **change}).encode().ljust(4096, b"\0") + whole[4096:], said) for change, said in (
                              ({"rows": 10**9}, "bytes; must have"), ({"rows": -1}, "is no file"), ({"dim": "6"}, "is no file"),
                              ({"states": 7}, "is no file"), ({"more": 1}, "is no file"), ({"optimizer": "none"}, "its optimizer is 'none'")))):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=said):
            DiskTable(path, cache="1MiB")
    with pytest.raises(OSError, match="absent.rows: cannot be opened: No such file"):
        DiskTable(tmp_path / "absent.rows")
