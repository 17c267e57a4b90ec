"""DCGAN on 16 x 16 digits: a generator of transposed convolutions against a convolutional discriminator, two Adams."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from sklearn.datasets import load_digits

nz, ngf, ndf, batch_size = 16, 16, 16, 32


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),  # 4 x 4
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),     # 8 x 8
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False), nn.Tanh())                                    # 16 x 16

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),                               # 8 x 8
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, inplace=True),  # 4 x 4
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False))

    def forward(self, x):
        return self.main(x).view(-1)


def weights_init(rng):
    def apply(m):
        classname = m.__class__.__name__
        if classname.find("Conv") != -1:
            m.weight.data.copy_(torch.from_numpy(rng.normal(0.0, 0.05, tuple(m.weight.shape)).astype(np.float32)))
        elif classname.find("BatchNorm") != -1:
            m.weight.data.copy_(torch.from_numpy(rng.normal(1.0, 0.02, tuple(m.weight.shape)).astype(np.float32)))
            nn.init.constant_(m.bias.data, 0)
    return apply


rng = np.random.default_rng(0)
netG, netD = Generator(), Discriminator()
netG.apply(weights_init(rng))
netD.apply(weights_init(rng))
criterion = nn.BCEWithLogitsLoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
real_label = torch.full((batch_size,), 0.9)
fake_label = torch.zeros(batch_size)
digits = torch.tensor(load_digits().images[:, None] / 8 - 1, dtype=torch.float32)


def d_loss(real, noise):
    return criterion(netD(real), real_label) + criterion(netD(netG(noise).detach()), fake_label)


def d_step(real, noise):
    netD.zero_grad()
    loss = d_loss(real, noise)
    loss.backward()
    optimizerD.step()
    return loss


def g_step(noise):
    netG.zero_grad()
    loss = criterion(netD(netG(noise)), real_label)
    loss.backward()
    optimizerG.step()
    return loss


if "--graph" in sys.argv and hasattr(nn, "Graph"):
    class DStep(nn.Graph):
        def __init__(self):
            super().__init__()
            self.netD, self.netG = netD, netG
            self.add_optimizer(optimizerD)

        def build(self, real, noise):
            loss = d_loss(real, noise)
            loss.backward()
            return loss

    class GStep(nn.Graph):
        def __init__(self):
            super().__init__()
            self.netD, self.netG = netD, netG
            self.add_optimizer(optimizerG)

        def build(self, noise):
            loss = criterion(self.netD(self.netG(noise)), real_label)
            loss.backward()
            return loss

    d_step, g_step = DStep(), GStep()

for step in range(12):
    real = F.interpolate(digits[step * batch_size:(step + 1) * batch_size], scale_factor=2)
    noise = torch.from_numpy(rng.normal(size=(batch_size, nz, 1, 1)).astype(np.float32))
    errD = d_step(real, noise)
    errG = g_step(noise)
    print(step, f"{errD.item():.8g}", f"{errG.item():.8g}")
