"""What the tests of save and load share."""

import io
import zipfile

import torch

import sluice as sl


def ours(t):
    """A torch tensor as one of Sluice, through a checkpoint."""
    buffer = io.BytesIO()
    torch.save(t, buffer)
    buffer.seek(0)
    return sl.load(buffer)


def checkpoint(data, **records):
    """A zip file with this data.pkl."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in {"data.pkl": data, "version": b"3\n", **records}.items():
            archive.writestr(f"archive/{name}", content)
    buffer.seek(0)
    return buffer
