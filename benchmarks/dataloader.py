#!/usr/bin/env python3
"""DataLoader against torch's, over the same datasets: time of an epoch, every page of every batch read."""
import os

from common import Side, compare, wanted

# name: shape of a sample, batch size, batches of an epoch, workers, whether samples are rows of a tensor
CASES = {
    "dataloader.rows": ((100,), 64, 128, 0, True),
    "dataloader.rows.workers": ((100,), 64, 128, 2, True),
    "dataloader.images": ((3, 224, 224), 24, 16, 0, False),
    "dataloader.images.workers": ((3, 224, 224), 32, 16, 2, False),
    "dataloader.large.workers": ((4, 1024, 1024), 4, 16, 2, False),  # 64 MiB a batch
}


def make(library: str, shape: tuple, batch_size: int, batches: int, workers: int, rows: bool):
    """A function that runs n epochs of a loader."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import numpy as np
    if library == "sluice":
        import sluice as torch
        import sluice.utils.data as data
    else:
        import torch
        import torch.utils.data as data

    class Images(data.Dataset):
        """Copies of one image, as a decoder would make them."""

        def __init__(self):
            self.image = np.ones(shape, np.float32)

        def __len__(self):
            return batches * batch_size

        def __getitem__(self, index):
            return torch.from_numpy(self.image.copy()), index

    n = batches * batch_size
    dataset = data.TensorDataset(torch.randn((n, *shape)), torch.arange(n)) if rows else Images()
    loader = data.DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0,
                             multiprocessing_context="fork" if workers else None)

    def run(count: int) -> None:
        for _ in range(count):
            for values, _ in loader:
                values.numpy().reshape(-1)[::1024].sum()

    return run


def image(index: int):
    """64 MiB."""
    import numpy as np
    return np.full((16, 1024, 1024), index, np.float32)


class Large:
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return image(index)


def make_large(pickled: bool):
    """A function that takes 16 arrays of 64 MiB from two processes: by a DataLoader, or by a Pool, which pickles them."""
    if pickled:
        import multiprocessing
        pool = multiprocessing.get_context("fork").Pool(2)
        epoch = lambda: pool.imap(image, range(16))  # noqa: E731
    else:
        import sluice.utils.data as data
        loader = data.DataLoader(Large(), batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context="fork")
        epoch = lambda: (t.numpy() for t in loader)  # noqa: E731

    def run(count: int) -> None:
        for _ in range(count):
            for values in epoch():
                values.reshape(-1)[::1024].sum()

    return run


if __name__ == "__main__":
    for name, case in CASES.items():
        if wanted(name):
            sides = [Side(make, library, *case, daemon=False) for library in ("sluice", "torch")]
            compare(name, *sides, "torch", rounds=5, batches=case[2], workers=case[3])
    if wanted("dataloader.pickle"):
        sides = [Side(make_large, pickled, daemon=False) for pickled in (False, True)]
        compare("dataloader.pickle", *sides, "a Pool, which pickles", rounds=3, workers=2)
