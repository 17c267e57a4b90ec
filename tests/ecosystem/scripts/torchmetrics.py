import torch
import torchmetrics

torch.manual_seed(0)
scores, labels = torch.rand(40, 5).softmax(-1), torch.randint(0, 5, (40,))
metrics = torchmetrics.MetricCollection([torchmetrics.Accuracy(task="multiclass", num_classes=5),
                                         torchmetrics.F1Score(task="multiclass", num_classes=5, average="macro"),
                                         torchmetrics.ConfusionMatrix(task="multiclass", num_classes=5),
                                         torchmetrics.AUROC(task="multiclass", num_classes=5)])
for part in range(4):
    metrics.update(scores[part * 10:part * 10 + 10], labels[part * 10:part * 10 + 10])
error = torchmetrics.MeanSquaredError()
results = {name: value.numpy() for name, value in metrics.compute().items()}
results["mse"] = error(scores[:, 0], scores[:, 1]).numpy()
