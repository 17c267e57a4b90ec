"""Frames that come faster than a net takes them: the newest is shown, older ones are dropped and counted."""

import contextlib

import numpy as np
import pytest

import sluice as sl
from sluice import data, nn

FRAME, MODEL = 1 / 60, 1 / 10  # seconds: 60 frames a second for a model that does 10


class World:
    """A virtual time, in which a camera goes on while the model works."""

    def __init__(self, frames):
        self.now, self.shown, self.frames, self.camera = 0.0, 0, frames, None

    def until(self, end):
        """Lets time go by: the camera gives what comes meanwhile."""
        while self.shown < self.frames and self.shown * FRAME <= end + 1e-9:
            self.now = max(self.now, self.shown * FRAME)
            self.camera.put(np.full(2, self.shown, np.float32))
            self.shown += 1
        if self.shown == self.frames:
            self.camera.close()
        self.now = max(self.now, end)

    def model(self, x):
        self.until(self.now + MODEL)
        return x * 2


class Live(nn.Graph):
    def __init__(self, world, **options):
        super().__init__(name="live")
        self.world = world
        self.camera = world.camera = data.Limiter(((2,), sl.float32), clock=lambda: world.now, **options)

    def build(self):
        y = sl.host_function(self.world.model, self.camera() + 1, out=((2,), sl.float32), stream="host:3")
        return self.camera.finished(y - 2)


def shown(graph, ahead=4):
    """All results, with so many steps submitted ahead."""
    got, steps = [], []
    while True:
        try:
            while len(steps) < ahead:
                steps.append(graph())
            got.append(steps.pop(0).numpy()[0] / 2)
        except sl.EndOfData:
            break
    for step in steps:
        with contextlib.suppress(sl.EndOfData):
            got.append(step.numpy()[0] / 2)
    return [int(x) for x in got]


def test_latency_is_bounded_and_drops_are_counted():  # MPP-05
    world = World(120)
    graph = Live(world)
    world.until(0)
    frames = shown(graph)
    camera = graph.camera
    assert frames == sorted(set(frames)) and frames[0] == 0 and frames[-1] == 119
    assert len(frames) == camera.finished_count == pytest.approx(120 * FRAME / MODEL, abs=2)
    assert camera.put_count == 120 and camera.dropped == 120 - len(frames)
    assert len(camera.latencies) == len(frames) and max(camera.latencies) <= MODEL + FRAME + 1e-6, list(camera.latencies)


def test_without_drops_latency_has_no_bound():  # MPP-05
    world = World(120)
    graph = Live(world, waiting=120)
    world.until(0)
    assert shown(graph) == list(range(120)) and graph.camera.dropped == 0
    assert max(graph.camera.latencies) == graph.camera.latencies[-1] > 60 * MODEL


def test_the_bound_is_a_token_of_the_plan():  # MPP-05
    """A way leads from where a step is finished to where frames are taken, and begins with one token."""
    world = World(1)
    graph = Live(world)
    graph.compile()
    plan = graph.plan
    of = {plan["kernels"][index]["name"]: a for a, actor in enumerate(plan["actors"]) for kind, index in actor["program"] if kind == "run"}
    functions = {k["attrs"]["name"]: of[k["name"]] for k in plan["kernels"] if k["op"] == "host_function"}
    finish, take = functions["_finish"], functions["_take"]
    reach, tokens, todo = set(), {}, [(finish, 0)]
    while todo:
        actor, before = todo.pop()
        if (actor, before) in reach:
            continue
        reach.add((actor, before))
        for edge in plan["edges"]:
            register = plan["registers"][edge["reg"]]
            if register["producer"] == actor and before + register["initial_tokens"] <= 1:
                todo.append((edge["consumer"], before + register["initial_tokens"]))
    assert (take, 1) in reach and (take, 0) not in reach, (reach, tokens)


def test_a_model_that_fails_loses_its_frame_alone():
    world = World(30)
    calls = []

    def model(x):
        calls.append(x[0])
        world.until(world.now + MODEL)
        if len(calls) == 2:
            raise ValueError("the second is refused")
        return x * 2

    world.model = model
    graph = Live(world)
    world.until(0)
    got, failed = [], 0
    while True:
        try:
            got.append(graph().numpy()[0])
        except sl.EndOfData:
            break
        except sl.Error as error:
            failed += 1
            assert "the second is refused" in str(error)
    assert failed == 1 and len(got) == len(calls) - 1 == graph.camera.finished_count
    assert max(graph.camera.latencies) <= MODEL + FRAME + 1e-6


def test_it_begins_anew_and_says_what_it_wants():
    world = World(1)
    graph = Live(world)
    world.until(0)
    assert shown(graph, 1) == [0]
    with pytest.raises(RuntimeError, match="Limiter.put: closed"):
        graph.camera.put(np.zeros(2, np.float32))
    graph.reset()
    world.shown = 0
    world.until(0)
    assert shown(graph, 1) == [0]
    for wrong, told in (((np.zeros(3, np.float32),), r"float32\(3,\); must be float32\(2,\)"), ((), r"no parts; must be float32\(2,\)")):
        with pytest.raises(ValueError, match=told):
            graph.camera.put(*wrong)
    with pytest.raises(ValueError, match="waiting: 0; must be at least 1"):
        data.Limiter(((2,), sl.float32), waiting=0)
    with pytest.raises(TypeError, match="outside of a graph's build"):
        graph.camera()
