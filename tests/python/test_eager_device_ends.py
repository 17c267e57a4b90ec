"""Eager operations on devices: late failures, threads, memory, forks and ends of programs."""

import gc
import threading

import pytest

import sluice as sl
import sluice.nn.functional as F
from on_sim import SIM


def test_failures_come_late_and_name_the_call():
    table, index = sl.ones(3, 2, device=SIM), sl.tensor([5], device=SIM)
    rows = table.index_select(0, index)  # nobody knows yet
    with pytest.raises(IndexError, match=r"(?s)index_select.*test_eager_device_ends.py:\d+, index_select, call \d+ of sim:0"):
        rows.tolist()
    with pytest.raises(IndexError, match="index_select"):
        (rows + 1).tolist()
    with pytest.raises(IndexError, match="index_select"):
        print(rows)
    assert (table + 1).tolist() == [[2, 2]] * 3  # the device goes on
    F.embedding(index, table)
    with pytest.raises(IndexError, match="embedding"):
        sl.get_device_module(SIM).synchronize()
    sl.get_device_module(SIM).synchronize()
    rows.zero_()
    assert rows.tolist() == [[0, 0]]


def test_two_threads_use_one_device():
    failures = []

    def work(n):
        try:
            x = sl.full((50,), float(n), device=SIM)
            for i in range(100):
                x = x * 1 + 1
                if i % 30 == 0:
                    assert x[0].item() == n + i + 1
            assert x.tolist() == [n + 100.0] * 50
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures


def test_memory_is_reused_bounded_and_given_back():
    sim = sl.get_device_module(SIM)
    gc.collect()
    sim.synchronize()
    sim.empty_cache()
    before = sim.memory_allocated()
    x = sl.ones(10000, device=SIM)
    assert sim.memory_allocated() == before + 40000
    sim.reset_peak_memory_stats()
    for _ in range(100):
        x = x * 0.5 + 0.5
    assert x[0].item() == 1 and sim.max_memory_allocated() <= before + 3 * 40000 + 1000
    reserved = sim.memory_reserved()
    assert reserved <= before + 5 * 45056
    del x
    sim.empty_cache()
    assert sim.memory_allocated() == before and sim.memory_reserved() < reserved
    assert sim.memory_stats()["allocated_bytes.all.current"] == before
    assert sim.current_stream() == sim.current_stream(SIM) and sim.is_available()
    assert sl.get_device_module("cuda") is sl.cuda and sl.get_device_module().__name__.endswith("('cpu')")


def test_a_fork_is_told_that_the_device_is_lost(run_script):
    done = run_script("""
import os, sluice as sl
x = sl.ones(2, device="sim:0") + 1
child = os.fork()
if child == 0:
    for call in (lambda: x + 1, lambda: x.tolist(), lambda: sl.ones(2, device="sim:0")):
        try:
            call()
        except RuntimeError as error:
            assert "made before fork()" in str(error), error
        else:
            os._exit(3)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(x.tolist())
""", timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "[2.0, 2.0]", done.stdout + done.stderr


def test_the_program_ends_with_work_queued(run_script):
    done = run_script("""
import sluice as sl
x = sl.rand(400, 400, device="sim:0")
for _ in range(50):
    x = x @ x / 400
y = x.requires_grad_() * 2
print("queued")
""", timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "queued", done.stdout + done.stderr
