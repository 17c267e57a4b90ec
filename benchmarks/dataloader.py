#!/usr/bin/env python3
"""DataLoader against torch's, over the same datasets: time of a batch. Usage: dataloader.py [PREFIX]."""
import os

from common import Side, compare, wanted

# name: shape of a sample, batch size, workers, whether samples are rows of a tensor
CASES = {
    "dataloader.rows": ((100,), 64, 0, True),
    "dataloader.rows.workers": ((100,), 64, 2, True),
    "dataloader.images": ((3, 224, 224), 32, 0, False),
    "dataloader.images.workers": ((3, 224, 224), 32, 2, False),
    "dataloader.large.workers": ((4, 512, 512), 16, 2, False),  # 64 MiB a batch
}


def make(library: str, shape: tuple, batch_size: int, workers: int, rows: bool):
    """A function that takes n batches, of a loader that begins anew when it has ended."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if library == "sluice":
        import sluice as torch
        import sluice.utils.data as data
    else:
        import torch
        import torch.utils.data as data

    class Images(data.Dataset):
        """Copies of one image, as a decoder would make them."""

        def __init__(self):
            self.image, self.label = torch.randn(shape), torch.tensor(1)

        def __len__(self):
            return 64 * batch_size

        def __getitem__(self, index):
            return self.image.clone(), self.label

    dataset = data.TensorDataset(torch.randn((64 * batch_size, *shape)), torch.arange(64 * batch_size)) if rows else Images()
    loader = data.DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    batches = iter(loader)

    def run(count: int) -> None:
        nonlocal batches
        for _ in range(count):
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                batch = next(batches)

    return run


if __name__ == "__main__":
    for name, case in CASES.items():
        if wanted(name):
            compare(name, Side(make, "sluice", *case), Side(make, "torch", *case), "torch", rounds=7, workers=case[2])
