import numpy as np
import torch
from gymnasium import Env, spaces
from stable_baselines3 import PPO


class Line(Env):
    """One step to the left or right; the middle is the best."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.at, self.left = 0.5, 8
        return np.array([self.at], np.float32), {}

    def step(self, action):
        self.at, self.left = float(np.clip(self.at + (0.25 if action else -0.25), -1, 1)), self.left - 1
        return np.array([self.at], np.float32), -abs(self.at), self.left == 0, False, {}


model = PPO("MlpPolicy", Line(), n_steps=32, batch_size=16, n_epochs=2, seed=0, device="cpu")
model.learn(64)
seen = torch.as_tensor(np.linspace(-1, 1, 5, dtype=np.float32)[:, None])
with torch.no_grad():
    results = {"values": model.policy.predict_values(seen).numpy(), "chances": model.policy.get_distribution(seen).distribution.probs.numpy()}
