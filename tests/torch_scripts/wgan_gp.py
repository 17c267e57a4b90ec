"""WGAN with gradient penalty on a ring of eight Gaussians: the critic's loss has the norm of a gradient in it."""

import sys

import numpy as np
import torch
from torch import autograd, nn, optim

LAMBDA, BATCH, HIDDEN = 10.0, 64, 64


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.LeakyReLU(0.1), nn.Linear(HIDDEN, HIDDEN), nn.Softplus(),
                         nn.Linear(HIDDEN, outputs))


def initialise(model, rng):
    with torch.no_grad():
        for p in model.parameters():
            scale = p.shape[1] ** -0.5 if p.ndim == 2 else 0.01
            p.copy_(torch.as_tensor(rng.normal(0, scale, tuple(p.shape))))


def real_data(rng):
    angle = rng.integers(0, 8, BATCH) * np.pi / 4
    return torch.Tensor(np.stack([np.cos(angle), np.sin(angle)], 1) + rng.normal(0, 0.05, (BATCH, 2)))


def gradient_penalty(critic, real, fake, alpha):
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(mixed)
    gradients = autograd.grad(outputs=scores, inputs=mixed, grad_outputs=torch.ones_like(scores),
                              create_graph=True, retain_graph=True, only_inputs=True)[0]
    return LAMBDA * ((gradients.norm(2, dim=1) - 1) ** 2).mean()


rng = np.random.default_rng(0)
generator, critic = mlp(4, 2), mlp(2, 1)
initialise(generator, rng)
initialise(critic, rng)
opt_g = optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_c = optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))


def critic_loss(real, z, alpha):
    with torch.no_grad():
        fake = generator(z)
    return critic(fake).mean() - critic(real).mean() + gradient_penalty(critic, real, fake, alpha)


def critic_step(real, z, alpha):
    opt_c.zero_grad()
    loss = critic_loss(real, z, alpha)
    loss.backward()
    opt_c.step()
    return loss


def generator_step(z):
    for p in critic.parameters():
        p.requires_grad = False
    opt_g.zero_grad()
    loss = -critic(generator(z)).mean()
    loss.backward()
    opt_g.step()
    for p in critic.parameters():
        p.requires_grad = True
    return loss


if "--graph" in sys.argv and hasattr(nn, "Graph"):
    class CriticStep(nn.Graph):
        def __init__(self):
            super().__init__()
            self.generator, self.critic = generator, critic
            self.add_optimizer(opt_c)

        def build(self, real, z, alpha):
            loss = critic_loss(real, z, alpha)
            loss.backward()
            return loss

    class GeneratorStep(nn.Graph):
        def __init__(self):
            super().__init__()
            self.generator, self.critic = generator, critic
            self.add_optimizer(opt_g)

        def build(self, z):
            loss = -self.critic(self.generator(z)).mean()
            loss.backward()
            return loss

    critic_step, generator_step = CriticStep(), GeneratorStep()


def noise():
    return torch.from_numpy(rng.normal(size=(BATCH, 4))).float()


for step in range(10):
    for _ in range(3):
        alpha = torch.from_numpy(rng.random((BATCH, 1))).float()
        loss_c = critic_step(real_data(rng), noise(), alpha)
    loss_g = generator_step(noise())
    print(step, f"{loss_c.item():.8g}", f"{loss_g.item():.8g}")
