"""REINFORCE with a baseline: a policy learns to walk along a corridor to the door; actions by torch.distributions."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical


class Corridor:
    """Cells 0..n-1; actions left, stay, right; slippery; ends at the right end or after 30 moves."""

    def __init__(self, n=6, seed=0):
        self.n, self.rng = n, np.random.default_rng(seed)

    def reset(self):
        self.cell, self.moves = 0, 0
        return self.observe()

    def observe(self):
        return np.eye(self.n, dtype=np.float32)[self.cell]

    def step(self, action):
        move = action - 1 if self.rng.random() < 0.9 else 0
        self.cell = int(np.clip(self.cell + move, 0, self.n - 1))
        self.moves += 1
        done = self.cell == self.n - 1
        return self.observe(), 1.0 if done else -0.05, done or self.moves == 30


class Policy(nn.Module):
    def __init__(self, observations=6, hidden=24, actions=3):
        super().__init__()
        self.affine = nn.Linear(observations, hidden)
        self.action_head = nn.Linear(hidden, actions)
        self.value_head = nn.Linear(hidden, 1)

    def forward(self, x):
        x = torch.tanh(self.affine(x))
        return Categorical(logits=self.action_head(x)), self.value_head(x).squeeze(-1)


def initialise(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape)).astype(np.float32)))


def select(distribution, rng):
    """As distribution.sample(), but by numpy's generator, so that every library takes the same walk."""
    below = distribution.probs.detach().cumsum(-1) < rng.random()
    return below.sum().clamp(max=2)


def main(gamma=0.97):
    env, rng = Corridor(), np.random.default_rng(1)
    policy = Policy()
    initialise(policy)
    optimizer = optim.Adam(policy.parameters(), lr=0.02)
    for episode in range(20):
        state, done = env.reset(), False
        log_probs, values, entropies, rewards = [], [], [], []
        while not done:
            distribution, value = policy(torch.from_numpy(state))
            action = select(distribution, rng)
            state, reward, done = env.step(action.item())
            log_probs.append(distribution.log_prob(action))
            entropies.append(distribution.entropy())
            values.append(value)
            rewards.append(reward)
        returns = []
        R = 0
        for r in rewards[::-1]:
            R = r + gamma * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        values = torch.stack(values)
        advantages = returns - values.detach()
        loss = -(torch.stack(log_probs) * advantages).sum() + F.smooth_l1_loss(values, returns, reduction="sum")
        loss = loss - 0.1 * torch.stack(entropies).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(episode, f"{loss.item():.8g}", len(rewards))


if __name__ == "__main__":
    main()
