import numpy as np
import torch
from skorch import NeuralNetClassifier

torch.manual_seed(0)
draw = np.random.default_rng(0)
x = draw.normal(size=(60, 4)).astype(np.float32)
y = (x[:, 0] > x[:, 1]).astype(np.int64)
net = NeuralNetClassifier(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2), torch.nn.Softmax(-1)),
                          max_epochs=4, lr=0.1, train_split=None, iterator_train__shuffle=False, verbose=0)
net.fit(x, y)
results = {"losses": net.history[:, "train_loss"], "said": net.predict_proba(x)}
