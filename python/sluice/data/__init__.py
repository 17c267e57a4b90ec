"""Input pipelines: from files to batches, as actors of a plan, in an order that is a function of seed, epoch and position.

    train = (data.images("train/").shuffle().batch(64)
             .decode(224, crop=data.random_resized_crop(), flip=0.5).normalize(MEAN, STD).on_error("replace", most=100))
    for x, y in train: ...

See docs/input-pipelines.md.
"""

from __future__ import annotations

from typing import Any, Iterator

from sluice._C import Tensor
from sluice.data import _combined, _layouts, _sources, augment as augment, records as _records
from sluice.data._disk_table import DiskTable as DiskTable
from sluice.data._limiter import Limiter as Limiter
from sluice.data._order import Interleaved
from sluice.data._pipeline import Errors as Errors, Pipeline as Pipeline
from sluice.data._service import Remote as Remote, Server as Server
from sluice.data._stages import Crop as Crop, central_crop as central_crop, random_resized_crop as random_resized_crop
from sluice.data._statistics import StageUse as StageUse, Statistics as Statistics
from sluice.data.records import Writer as RecordWriter

__all__ = ["Crop", "DiskTable", "Errors", "Limiter", "Pipeline", "RecordWriter", "Remote", "Server", "StageUse",
           "Statistics", "arrays", "augment", "central_crop", "cifar", "coco", "csv", "dataset", "images", "interleave",
           "lines", "mnist", "parquet", "random_resized_crop", "read_records", "records", "remote", "serve", "tar",
           "torch_iter", "voc", "zip"]

read_records = _records.read


def images(folder: Any, *, seed: int = 0, index: Any = None) -> Pipeline:
    """JPEG, PNG and WebP files in a folder for each class: (encoded image, label); torchvision's ImageFolder. `classes` has the names.

    index: a file in which what was found is kept; it is used again while no file has come, gone or been renamed.
    """
    return Pipeline(_sources.image_folder(folder, index), seed)


def tar(pattern: Any, *, label: str = "cls", seed: int = 0, index: Any = None) -> Pipeline:
    """Images in tar files, as WebDataset has them: files whose names are alike to the first dot are a sample; (encoded image, label).

    pattern: a name, one with ranges ("train-{000..146}.tar") or wildcards, or a list. label: the extension of the file with the label.
    index: as of images(); the files must not have changed. Members are read where they lie; nothing is unpacked.
    """
    return Pipeline(_sources.tar(pattern, index, label), seed)


def records(pattern: Any, *, seed: int = 0, index: Any = None) -> Pipeline:
    """Encoded images in record files of TensorFlow's framing: (encoded image, label). RecordWriter writes such files, with labels."""
    return Pipeline(_sources.records(pattern, index), seed)


def arrays(*arrays: Any, seed: int = 0) -> Pipeline:
    """Rows of NumPy arrays, which may be mapped from files (numpy.load(path, mmap_mode="r"))."""
    return Pipeline(_sources.Arrays(*arrays), seed)


def csv(path: Any, columns: Any = None, label: Any = None, *, seed: int = 0) -> Pipeline:
    """Columns of numbers, float32 (N, columns), and a column of integers as label. The file's first line has the names."""
    return Pipeline(_sources.csv(path, columns, label), seed)


def lines(pattern: Any, width: int, *, seed: int = 0, index: Any = None) -> Pipeline:
    """Lines of text files: their first `width` bytes, uint8 (N, width), and how many there are. map() before batch() gets texts."""
    return Pipeline(_sources.Lines(pattern, width, index), seed)


def zip(*pipelines: Pipeline, seed: int = 0) -> Pipeline:  # noqa: A001 as tf.data calls it
    """Samples of several pipelines side by side, before their batch(): (x, y) and z become (x, y, z). As many as the shortest has.

    The parts have no shuffle(), shard() or repeat(); what zip() gives may have. Encoded images may be the first part.
    """
    if not pipelines:
        raise ValueError("data.zip: no pipelines; must have one at least")
    return Pipeline(_combined.Zipped([p.as_part("zip") for p in pipelines]), seed)


def interleave(*pipelines: Pipeline, weights: Any = None, block: int = 1, seed: int = 0) -> Pipeline:
    """Samples of several pipelines in turn, before their batch(): `block` of each; or in shares of `weights`, at any place. Those that have
    more samples go on among themselves. The parts may be shuffled, each in itself; a shuffle() of what interleave() gives is of all.
    """
    parts = [p.as_part("interleave", moving=True) for p in pipelines]
    if not parts or block < 1:
        raise ValueError(f"data.interleave: {len(parts)} pipelines, block {block}; must be at least 1")
    if weights is not None and (len(weights) != len(parts) or min(weights) <= 0):
        raise ValueError(f"data.interleave: weights {weights} of {len(parts)} pipelines; must be a positive number for each")
    joined = (_combined.JoinedFiles if parts[0].images else _combined.Joined)(parts)
    return Pipeline(joined, seed)._interleaved(Interleaved([p._order for p in pipelines], joined.begins, weights, block))


def mnist(folder: Any, train: bool = True, *, seed: int = 0) -> Pipeline:
    """MNIST, and what has its format: uint8 (N, 1, 28, 28) and labels. The folder has its files, packed or not, or torchvision's MNIST/raw."""
    return Pipeline(_layouts.mnist(folder, train), seed)


def cifar(folder: Any, classes: int = 10, train: bool = True, *, seed: int = 0) -> Pipeline:
    """CIFAR-10 or CIFAR-100: uint8 (N, 3, 32, 32) and labels. Its binary version, or the one for Python, of which nothing is run."""
    return Pipeline(_layouts.cifar(folder, classes, train), seed)


def coco(folder: Any, annotations: Any, *, most: int | None = None, crowds: bool = False, seed: int = 0) -> Pipeline:
    """COCO's images and instances: (encoded image, how many objects, boxes, classes), of which the last two have `most` rows an image.

    boxes: float32, left, top, right, bottom, as parts of the image from 0 to 1; zeros behind the last. classes: numbers of the names in
    `classes`, in the order of COCO's numbers; -1 behind the last. most: by default as many as the image with most objects has.
    """
    return Pipeline(_layouts.coco(folder, annotations, most, crowds), seed)


def voc(folder: Any, image_set: str = "train", year: str = "2012", *, most: int | None = None, difficult: bool = False,
        seed: int = 0) -> Pipeline:
    """Pascal VOC's images and objects, as coco() has them. The folder has VOCdevkit, or is VOC2012 itself."""
    return Pipeline(_layouts.voc(folder, image_set, year, most, difficult), seed)


def parquet(path: Any, columns: Any = None, label: Any = None, *, seed: int = 0) -> Pipeline:
    """Columns of numbers of a Parquet file, as csv() has them, by the package pyarrow. They are read into memory."""
    return Pipeline(_layouts.parquet(path, columns, label), seed)


def dataset(samples: Any, *, seed: int = 0) -> Pipeline:
    """Samples of a dataset of Python, as torch's: anything with len() and [i] that gives arrays, tensors and numbers."""
    return Pipeline(_sources.Items(samples), seed)


def torch_iter(pipeline: Pipeline) -> Iterator[Any]:
    """The batches of a pass as torch's tensors, for a training in torch: the same memory, by DLPack. torch must be installed."""
    import torch

    for batch in pipeline:
        yield torch.from_dlpack(batch) if isinstance(batch, Tensor) else tuple(torch.from_dlpack(part) for part in batch)


def serve(pipeline: Pipeline, address: str = "127.0.0.1:0", *, token: str | None = None) -> Server:
    """Makes the batches of a pipeline for trainings in other processes, in the background, until close(): wait() waits for that.

    address: "host:port" (port 0: any, `Server.address` says which), or "unix:PATH". Addresses that other machines reach need a token, which
    whoever connects must have; nothing is encrypted. Each rank that connects gets its share of the samples, as by shard().
    """
    return Server(pipeline, address, token)


def remote(address: str, rank: int = 0, world: int = 1, *, token: str | None = None, ahead: int = 2, timeout: float = 60.0) -> Remote:
    """The batches that a server at this address makes: those of its pipeline with shard(rank, world), to be iterated over, or called inside of
    a graph's build(). ahead: batches that are asked for before they are wanted. timeout: seconds to look for the server.
    """
    return Remote(address, rank, world, token, ahead, timeout)
