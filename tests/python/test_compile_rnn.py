"""A recurrent model whose forward is decorated trains in an ordinary loop, with an ordinary optimizer. PS-12"""

import pytest
import torch

import sluice as sl


def classifier(module, decorate):
    """A loop of Python over the rows of a sequence, as programs for dynamic graphs have it."""

    class Classifier(module.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = module.nn.GRUCell(6, 12), module.nn.Linear(12, 4)

        @decorate
        def forward(self, rows):
            state = module.zeros(rows.shape[1], 12)
            for row in rows:
                state = self.cell(row, state)
            return self.out(state)

    return Classifier()


def losses(module, model, optimizer, data):
    optimizer = optimizer(module.optim, model.parameters())
    found = []
    for rows, labels in data:
        optimizer.zero_grad()
        loss = module.nn.functional.cross_entropy(model(module.tensor(rows)), module.tensor(labels))
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("optimizer", [lambda optim, p: optim.SGD(p, lr=0.5, momentum=0.9), lambda optim, p: optim.Adam(p, lr=0.05)],
                         ids=["SGD", "Adam"])
def test_a_decorated_forward_trains_with_an_ordinary_optimizer(optimizer):
    torch.manual_seed(0)
    data = [(torch.randn(9, 5, 6).tolist(), torch.randint(0, 4, (5,)).tolist()) for _ in range(8)]
    peer = classifier(torch, lambda f: f)
    start = {k: v.numpy().copy() for k, v in peer.state_dict().items()}
    found = {}
    for name, decorate in (("eager", lambda f: f), ("compiled", sl.compile)):
        model = classifier(sl, decorate)
        model.load_state_dict({k: sl.from_numpy(v.copy()) for k, v in start.items()})
        found[name] = losses(sl, model, optimizer, data)
        if name == "compiled":
            stats = sl.compile.stats(type(model).forward)
            assert stats["calls"] == len(data) and stats["eager_calls"] == 0
            assert stats["plans"] == 1 and stats["backward_plans"] == 1
    assert found["compiled"] == pytest.approx(found["eager"], rel=1e-5)
    assert found["compiled"] == pytest.approx(losses(torch, peer, optimizer, data), rel=1e-4)
    assert found["compiled"][-1] != found["compiled"][0]
