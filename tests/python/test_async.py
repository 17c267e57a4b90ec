"""Calls that return at once, and calls that asyncio awaits."""

import asyncio
import gc
import threading

import pytest

import sluice as sl
from sluice import nn
from waiting import wait_until


class Net(nn.Graph):
    def __init__(self, f=lambda x: x * 2, steps=None):
        super().__init__()
        self.f = f
        if steps:
            self.config.set_outputs_buffer_size(steps)

    def build(self, x):
        return self.f(x)


def behind(turnstile):
    """x + 1, of a step that the turnstile lets through."""
    def wait(x):
        assert turnstile.acquire(timeout=60)
        return x + 1

    return lambda x: sl.host_function(wait, x, out=(tuple(x.shape), x.dtype))


def test_calls_return_at_once_and_reading_waits():
    turnstile = threading.Semaphore(0)
    graph = Net(behind(turnstile), steps=128)
    results = [graph(sl.zeros(4)) for _ in range(100)]
    assert not any(result.is_ready() for result in results)
    turnstile.release(100)
    assert results[-1].sync() is results[-1] and results[-1].is_ready()
    assert [result.tolist() for result in results] == [[1, 1, 1, 1]] * 100


def test_sync_waits_for_updates_and_throws_the_steps_error():
    def fail(x):
        raise ValueError("not today")

    y = Net(lambda x: sl.host_function(fail, x, out=(tuple(x.shape), x.dtype)))(sl.zeros(2))
    with pytest.raises(sl.errors.Error, match="not today"):
        y.sync()
    assert sl.ones(3).sync().tolist() == [1, 1, 1]


def test_a_thousand_awaits_come_in_order():
    graph = Net()

    async def main():
        done = []

        async def one(i):
            y = await graph.run_async(sl.tensor([float(i)]))
            assert y.is_ready()
            done.append(y.item())

        await asyncio.gather(*(one(i) for i in range(1000)))
        return done

    assert asyncio.run(main()) == [2.0 * i for i in range(1000)]


def test_the_loop_goes_on_while_steps_run_and_wait_for_room():
    turnstile = threading.Semaphore(0)
    graph = Net(behind(turnstile))

    async def main():
        steps = {asyncio.ensure_future(graph.run_async(sl.zeros(2))) for _ in range(12)}
        left, results = steps, []
        while left:  # only a loop that goes on lets the next step through
            turnstile.release()
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            results += [step.result().tolist() for step in done]
        return results

    graph.compile(sl.zeros(2))
    assert asyncio.run(main()) == [[1, 1]] * 12


def test_errors_reach_who_awaits_and_later_steps_run():
    def sometimes(x):
        if x[0] < 0:
            raise ValueError("negative")
        return x

    graph = Net(lambda x: sl.host_function(sometimes, x, out=(tuple(x.shape), x.dtype)))

    async def main():
        values = await asyncio.gather(*(graph.run_async(sl.tensor([v])) for v in (1.0, -1.0, 2.0)), return_exceptions=True)
        with pytest.raises(sl.errors.ValueError, match="shape"):
            await graph.run_async(sl.zeros(3))
        return values

    first, second, third = asyncio.run(main())
    assert first.item() == 1 and third.item() == 2
    assert isinstance(second, sl.errors.Error) and "negative" in str(second)


def test_a_graph_without_results_and_one_awaited_by_nobody():
    model = nn.Linear(2, 1, bias=False)
    model.weight.data.fill_(1)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.5))

        def build(self, x):
            self.model(x).sum().backward()

    graph = Train()

    async def main():
        assert await graph.run_async(sl.ones(1, 2)) is None
        assert model.weight.tolist() == [[0.5, 0.5]]
        asyncio.ensure_future(graph.run_async(sl.ones(1, 2)))  # cancelled as the loop ends
        await asyncio.sleep(0)

    asyncio.run(main())
    graph.synchronize()


def test_threads_of_awaiting_end_with_the_graph():
    graph = Net()
    asyncio.run(graph.run_async(sl.zeros(1)))
    name = f"{graph.name}: "
    ours = lambda: [t for t in threading.enumerate() if t.name.startswith(name)]  # noqa: E731
    assert len(ours()) == 2
    del graph

    def ended():
        gc.collect()  # again, since a thread may have had the graph in its hands
        return not ours()

    wait_until(ended, "the threads of a graph that is gone go on")
