"""A multi-layer perceptron on two interleaved spirals, with a data loader and a step schedule."""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def spirals(n, rng):
    t = np.sqrt(rng.random(n)) * 3 * np.pi
    label = rng.integers(0, 2, n)
    sign = np.where(label == 0, 1.0, -1.0)
    xy = np.stack([sign * t * np.cos(t), sign * t * np.sin(t)], 1) / 10 + rng.normal(0, 0.02, (n, 2))
    return torch.from_numpy(xy.astype(np.float32)), torch.from_numpy(label)


class MLP(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, x):
        return self.layers(x)


def initialise(model, seed=0):
    rng = np.random.default_rng(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            weight = rng.normal(0, module.in_features ** -0.5, (module.out_features, module.in_features))
            module.weight.data.copy_(torch.from_numpy(weight))
            nn.init.zeros_(module.bias)


def main():
    rng = np.random.default_rng(1)
    device = torch.device("cpu")
    loader = DataLoader(TensorDataset(*spirals(320, rng)), batch_size=32, shuffle=False)
    model = MLP().to(device)
    initialise(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    if "--graph" in sys.argv and hasattr(nn, "Graph"):
        class TrainStep(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer, lr_sch=scheduler)

            def build(self, x, y):
                loss = criterion(self.model(x), y)
                loss.backward()
                return loss

        train_step = TrainStep()

    step = 0
    for epoch in range(3):
        model.train()
        for x, y in loader:
            loss = train_step(x.to(device), y.to(device))
            print(step, f"{loss.item():.8g}")
            step += 1

    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x.to(device)).argmax(dim=1) == y.to(device)).sum().item()
    print("correct", correct)


if __name__ == "__main__":
    main()
