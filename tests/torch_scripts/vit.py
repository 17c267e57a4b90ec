"""A vision transformer on scikit-learn's digits: patches, a class token, nn.TransformerEncoder, AdamW with warm-up."""

import sys

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits


class PatchEmbedding(nn.Module):
    def __init__(self, patch, dim):
        super().__init__()
        self.project = nn.Conv2d(1, dim, kernel_size=patch, stride=patch)

    def forward(self, x):
        return self.project(x).flatten(2).transpose(1, 2)


class ViT(nn.Module):
    def __init__(self, image=8, patch=2, dim=32, depth=2, heads=4, classes=10):
        super().__init__()
        self.patches = PatchEmbedding(patch, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(torch.zeros(1, 1 + (image // patch) ** 2, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, dim_feedforward=4 * dim, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patches(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.encoder(x))[:, 0])


def initialise(model, seed=0):
    rng = np.random.default_rng(seed)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            drawn = rng.normal(0, 0.02 if p.dim() == 3 else (1 / p[0].numel()) ** 0.5, tuple(p.shape))
            p.data.copy_(torch.tensor(drawn, dtype=p.dtype))
        elif name.endswith("bias"):
            nn.init.zeros_(p)


def parameter_groups(model, weight_decay):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def main():
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.from_numpy(digits.target)
    model = ViT()
    initialise(model)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.05), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    criterion = nn.CrossEntropyLoss()

    def train_step(x, y):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    if "--graph" in sys.argv and hasattr(nn, "Graph"):
        class TrainStep(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, x, y):
                loss = criterion(self.model(x), y)
                loss.backward()
                return loss

        graph = TrainStep()

        def train_step(x, y):
            loss = graph(x, y)
            scheduler.step()  # a Python function of the step: outside of the graph
            return loss

    model.train()
    for step, rows in enumerate(torch.arange(640).split(32)):
        print(step, f"{train_step(images[rows], labels[rows]).item():.8g}")
    model.eval()
    with torch.inference_mode():
        logits = model(images[1000:1200])
    print("accuracy", (logits.argmax(-1) == labels[1000:1200]).float().mean().item())


if __name__ == "__main__":
    main()
