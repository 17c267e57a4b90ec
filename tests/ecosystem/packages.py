"""The packages that are tried, by the name that is imported, and the name that installs them."""

PACKAGES = {
    "accelerate": "accelerate", "captum": "captum", "einops": "einops", "gpytorch": "gpytorch", "kornia": "kornia",
    "linear_operator": "linear_operator", "peft": "peft", "pyro": "pyro-ppl", "pytorch_lightning": "pytorch-lightning",
    "pytorch_tabnet": "pytorch-tabnet", "segmentation_models_pytorch": "segmentation-models-pytorch",
    "sentence_transformers": "sentence-transformers", "skorch": "skorch", "stable_baselines3": "stable-baselines3", "timm": "timm",
    "torch_geometric": "torch-geometric", "torchdiffeq": "torchdiffeq", "torchmetrics": "torchmetrics", "torchvision": "torchvision",
    "transformers": "transformers", "vit_pytorch": "vit-pytorch", "x_transformers": "x-transformers",
}
# Modules that are programs or tests, or of which importing is work.
SKIPPED = ("__main__", ".tests", ".test_", "convert_", ".setup", ".modular_", ".cli.")
