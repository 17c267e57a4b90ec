"""Training with eager operations on the simulated device: losses are torch's, and graphs take turns."""

import numpy as np
import pytest
import torch

import sluice as sl
import sluice.nn as nn
from on_sim import SIM


def net(m):
    m.manual_seed(0)
    return m.nn.Sequential(m.nn.Conv2d(1, 4, 3), m.nn.BatchNorm2d(4), m.nn.ReLU(), m.nn.MaxPool2d(2), m.nn.Flatten(),
                           m.nn.Linear(36, 16), m.nn.LayerNorm(16), m.nn.GELU(), m.nn.Linear(16, 5))


OPTIMIZERS = {"sgd": lambda m, p: m.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
              "adam": lambda m, p: m.optim.Adam(p, lr=0.01, amsgrad=True), "adamw": lambda m, p: m.optim.AdamW(p, lr=0.01),
              "rmsprop": lambda m, p: m.optim.RMSprop(p, lr=0.005, momentum=0.5), "adagrad": lambda m, p: m.optim.Adagrad(p, lr=0.01)}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_net_trains_there_with_equal_losses(name):
    random = np.random.default_rng(0)
    images, labels = random.random((4, 6, 1, 8, 8), np.float32), random.integers(0, 5, (4, 6))

    def run(m, device):
        model = net(m)
        if m is torch:
            model.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in net(sl).state_dict().items()})
        model.to(device)
        optimizer = OPTIMIZERS[name](m, model.parameters())
        schedule = m.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        losses = []
        for x, y in zip(images, labels):
            x, y = m.from_numpy(x).to(device), m.from_numpy(y).to(device)
            optimizer.zero_grad()
            loss = m.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            m.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        assert {str(p.device) for p in model.parameters()} | {str(b.device) for b in model.buffers()} == {str(device)}
        return losses, optimizer, model

    ours, optimizer, model = run(sl, SIM)
    assert ours == run(sl, "cpu")[0]  # bit by bit
    np.testing.assert_allclose(ours, run(torch, "cpu")[0], rtol=2e-4)
    moments = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, sl.Tensor) and v.ndim]
    assert moments and {str(v.device) for v in moments} == {SIM}
    fresh = net(sl).to(SIM)
    fresh.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})
    assert str(fresh[0].weight.device) == SIM and fresh[0].weight.tolist() == model[0].weight.tolist()


def test_recurrent_and_attention_modules_there(same_products):
    sl.manual_seed(1)
    for module, inputs in ((nn.LSTM(3, 4, 2, bidirectional=True), (sl.randn(5, 2, 3),)), (nn.GRU(3, 4), (sl.randn(5, 2, 3),)),
                           (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (sl.randn(2, 5, 4),)),
                           (nn.MultiheadAttention(4, 2), (sl.randn(5, 2, 4),) * 3), (nn.Embedding(7, 3), (sl.tensor([[1, 2]]),)),
                           (nn.EmbeddingBag(7, 3), (sl.tensor([[1, 2]]),))):
        expected, got = module(*inputs), module.to(SIM)(*(x.to(SIM) for x in inputs))
        first = [v[0] if isinstance(v, tuple) else v for v in (expected, got)]
        assert str(first[1].device) == SIM, type(module)
        same_products(first[1].tolist(), first[0].tolist())


def test_eager_ops_and_graphs_take_turns_on_a_variable():
    model = nn.Linear(2, 1).to(SIM)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.1))
            self.config.set_device(SIM)

        def build(self, x):
            loss = self.model(x).sum()
            loss.backward()
            return loss

    graph, x = Train(), sl.ones(3, 2, device=SIM)
    for _ in range(20):
        before = model.weight.detach() * 1  # queued; the step must wait for it, and what follows for the step
        graph(x)
        after = model.weight.detach() - before
        with sl.no_grad():
            model.weight.add_(0.05)
            model.weight *= 1
        np.testing.assert_allclose(after.tolist(), [[-0.3, -0.3]], rtol=1e-5)
