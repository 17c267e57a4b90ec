"""Ranks as actors of Ray, for which a small stand-in is here: processes with Ray's names."""

import multiprocessing
import os
import pathlib
import sys

import pytest
import sluice as sl
from sluice.distributed.ray import RayTrainer

STAND_INS = str(pathlib.Path(__file__).parent / "stand_ins")


@pytest.fixture
def ray(monkeypatch):
    monkeypatch.syspath_prepend(STAND_INS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([STAND_INS, str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    import ray

    ray.started.clear()
    yield ray
    del sys.modules["ray"]
    assert not multiprocessing.active_children()


def train(config):
    import sluice.distributed as dist

    sl.manual_seed(0)
    net = sl.nn.parallel.DistributedDataParallel(sl.nn.Linear(4, 1))
    optimizer = sl.optim.SGD(net.parameters(), lr=config["lr"])
    x = sl.arange(32).reshape(8, 4).float()[dist.get_rank() * 4:][:4] / 32
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss := loss.detach().clone(), dist.ReduceOp.AVG)
        losses.append(loss.item())
    return dist.get_rank(), dist.get_world_size(), os.environ["SLUICE_LAUNCHER"], os.environ["LOCAL_RANK"], losses


def fail_on_one():
    import sluice.distributed as dist

    if dist.get_rank() == 1:
        raise KeyError("no such column")
    dist.barrier()
    dist.barrier()


def test_ranks_are_actors_that_train_together(ray):
    out = RayTrainer(train, train_loop_config={"lr": 0.1}, num_workers=2, resources_per_worker={"CPU": 1, "disk": 2}).fit()
    (r0, n0, by, l0, losses), (r1, n1, _, l1, others) = out
    assert (r0, r1, n0, n1, by, l0, l1) == (0, 1, 2, 2, "Ray", "0", "1") and losses == others
    assert ray.started == [{"num_cpus": 1, "num_gpus": 0, "resources": {"disk": 2}}] * 2
    sl.manual_seed(0)
    net, x = sl.nn.Linear(4, 1), sl.arange(32).reshape(8, 4).float() / 32
    optimizer, expected = sl.optim.SGD(net.parameters(), lr=0.1), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=1e-5)


def test_a_rank_that_fails_is_named(ray):
    with pytest.raises(RuntimeError, match="RayTrainer: rank [01] failed: .*KeyError: 'no such column'"):
        RayTrainer(fail_on_one, num_workers=2).fit()


def test_bad_uses_are_named(monkeypatch):
    for given, options, said in ((3, {}, "got 3; must be a function"), (train, {"num_workers": 0}, "num_workers: got 0; must be an int")):
        with pytest.raises(ValueError, match=said):
            RayTrainer(given, **options)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RuntimeError, match="Ray is not installed; .*sluice.distributed.launch"):
        RayTrainer(train).fit()
