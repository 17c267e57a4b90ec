import numpy as np
from pytorch_tabnet.tab_model import TabNetClassifier

draw = np.random.default_rng(0)
x = draw.normal(size=(64, 5)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.int64)
net = TabNetClassifier(n_d=4, n_a=4, n_steps=2, seed=0, verbose=0, device_name="cpu")
net.fit(x, y, max_epochs=2, batch_size=32, virtual_batch_size=16, drop_last=False)
results = {"said": net.predict_proba(x), "losses": net.history["loss"]}
