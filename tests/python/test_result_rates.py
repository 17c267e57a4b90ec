"""Whatever a graph returns, with any number of micro-batches: what eager code, here torch, would have."""

import random

import numpy as np
import pytest
import torch

import sluice as sl

ROWS, COLUMNS = 2, 3


def make_model(lib):
    model = lib.nn.Module()
    numbers = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    model.w = lib.nn.Parameter(lib.tensor(numbers / 8 - 0.25))
    model.register_buffer("counted", lib.tensor(numbers / 4))
    model.register_buffer("fixed", lib.tensor(numbers / 2 - 1))
    return model


SOURCES = {
    "input": lambda lib, m, x, loss: x,
    "parameter": lambda lib, m, x, loss: m.w,
    "buffer": lambda lib, m, x, loss: m.counted,
    "old content": lambda lib, m, x, loss: m.counted.clone(),
    "unchanged buffer": lambda lib, m, x, loss: m.fixed,
    "constant": lambda lib, m, x, loss: lib.full((ROWS, COLUMNS), 1.5),
    "value": lambda lib, m, x, loss: x * m.w,
    "of parameters": lambda lib, m, x, loss: m.w.exp(),
    "loss": lambda lib, m, x, loss: loss,
    "gradient": lambda lib, m, x, loss: m.w.grad,
}
VIEWS = {
    "all": lambda s: s,
    "row": lambda s: s[0] if s.ndim else s,
    "element": lambda s: s[0, 1] if s.ndim else s,
    "transposed": lambda s: s.t() if s.ndim else s,
    "flat": lambda s: s.reshape(-1),
    "column": lambda s: s[:, 1] if s.ndim else s,
    "expanded": lambda s: (s[0] if s.ndim else s).expand(4, *s.shape[1:]),
    "detached": lambda s: s.detach(),
    "detached row": lambda s: s.detach()[0] if s.ndim else s.detach(),
}
COMPUTED = {
    "plain": lambda v: v,
    "plus 0": lambda v: v + 0,
    "times 1": lambda v: v * 1,
    "exp": lambda v: v.exp(),
    "first of exp": lambda v: v.exp()[0] if v.ndim else v.exp(),
    "flat copy": lambda v: v.contiguous().reshape(-1),
    "sum": lambda v: v.sum(),
    "0-d": lambda v: v.reshape(-1)[0],
}
WRITABLE = {"input", "buffer", "old content", "constant", "value", "of parameters"}


def combinations(source):
    for view in VIEWS:
        for computed in COMPUTED:
            yield source, view, computed, False
            if source in WRITABLE and computed in ("plain", "exp"):
                yield source, view, computed, True


def build(lib, model, x, train, chosen):
    """Results of one micro-batch: `chosen` expressions, some of whose sources are written after the view was made."""
    loss = ((x * model.w).exp() * 0.125).mean()
    if train:
        loss.backward()
    made = []
    for source, view, computed, written in chosen:
        base = SOURCES[source](lib, model, x, loss)
        made.append((base if written else None, COMPUTED[computed], VIEWS[view](base)))
    model.counted.add_(x * 0.5)
    for base, _, _ in made:
        if base is not None:
            base.add_(0.25)
    return [compute(result) for _, compute, result in made]


def eager_step(model, optimizer, x, n, chosen):
    """As a loop over micro-batches keeps them. A value that an optimizer's step changes is read after it."""
    kept, grads = [], []
    for part in x.chunk(n):
        model.w.grad = None
        results = build(torch, model, part.clone(), optimizer is not None, chosen)
        kept.append([(r.detach(), r.detach().clone()) for r in results])
        grads.append(model.w.grad)
    if optimizer:
        model.w.grad = sum(grads) / n
        optimizer.step()
    changed = model.w.untyped_storage().data_ptr() if optimizer else None
    parts = [[r if r.untyped_storage().data_ptr() == changed else copy for r, copy in batch] for batch in kept]
    if n == 1:
        return parts[0]
    return [torch.cat([r.reshape(1) if r.ndim == 0 else r for r in result]) for result in zip(*parts)]


class Results(sl.nn.Graph):
    def __init__(self, n, train, chosen, granularity=None):
        super().__init__(name="results")
        self.model, self._train, self._chosen = make_model(sl), train, chosen
        if train:
            self.add_optimizer(sl.optim.SGD(self.model.parameters(), lr=0.5))
        self.config.set_gradient_accumulation_steps(n)
        if granularity:
            self.config.set_granularity(granularity)

    def build(self, x):
        return build(sl, self.model, x, self._train, self._chosen)


def check(n, train, chosen, granularity=None):
    graph, model = Results(n, train, chosen, granularity), make_model(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5) if train else None
    for step in range(3):
        x = np.random.RandomState(step).uniform(-1, 1, (n * ROWS, COLUMNS)).astype(np.float32)
        wanted = eager_step(model, optimizer, torch.tensor(x), n, chosen)
        for which, mine, theirs in zip(chosen, graph(sl.tensor(x)), wanted):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6,
                                       err_msg=f"{which} of step {step}")
    for mine, theirs in zip(graph.model.state_dict().values(), model.state_dict().values()):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


def allowed(source, train):
    return source != "gradient" or train


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("train", [False, True], ids=["called", "trained"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_every_result_is_what_eager_code_has(n, train, source):
    failed = {}  # message -> which
    for which in combinations(source):
        if not allowed(source, train):
            continue
        try:
            check(n, train, [which])
        except (sl.Error, RuntimeError, ValueError, AssertionError) as error:
            failed.setdefault(str(error).strip()[:300], []).append(which[1:])
    assert not failed, "\n".join(f"{len(which)}, as {which[0]}: {message}" for message, which in failed.items())


@pytest.mark.parametrize("seed", range(12))
def test_results_beside_each_other(seed):
    draw = random.Random(seed)
    n, train = draw.choice([2, 3]), draw.random() < 0.7
    every = [which for source in SOURCES if allowed(source, train) for which in combinations(source) if not which[3]]
    check(n, train, draw.sample(every, 8), draw.choice([None, "op"]))
