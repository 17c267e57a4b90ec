"""LeNet on scikit-learn's digits; the trained weights go through a file to a second model."""

import os
import sys
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from sklearn.datasets import load_digits


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 4 * 4, 60)
        self.fc2 = nn.Linear(60, 42)
        self.fc3 = nn.Linear(42, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(x.size(0), -1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return F.log_softmax(self.fc3(x), dim=1)


def initialise(model, seed=0):
    rng = np.random.default_rng(seed)
    state = {}
    for name, value in model.state_dict().items():
        fan_in = int(np.prod(value.shape[1:]))
        drawn = rng.normal(0, np.sqrt(2 / fan_in), tuple(value.shape)) if value.dim() > 1 else np.zeros(tuple(value.shape))
        state[name] = torch.tensor(drawn, dtype=torch.float32)
    model.load_state_dict(state)


def main():
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    images = F.interpolate(images, size=(24, 24), mode="bilinear", align_corners=False)
    labels = torch.tensor(digits.target, dtype=torch.long)
    model = LeNet()
    initialise(model)
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    if "--graph" in sys.argv and hasattr(nn, "Graph"):
        class TrainStep(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, x, y):
                loss = F.nll_loss(self.model(x), y)
                loss.backward()
                return loss

        train_step = TrainStep()

    for step in range(20):
        rows = slice(step * 32, (step + 1) * 32)
        print(step, f"{train_step(images[rows], labels[rows]).item():.8g}")

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lenet.pt")
        torch.save(model.state_dict(), path)
        restored = LeNet()
        restored.load_state_dict(torch.load(path))
    restored.eval()
    with torch.no_grad():
        output = restored(images[-300:])
    print("test", f"{F.nll_loss(output, labels[-300:]).item():.8g}")
    print("parameters", sum(p.numel() for p in restored.parameters() if p.requires_grad))


if __name__ == "__main__":
    main()
