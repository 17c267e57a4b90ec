"""Input pipelines: from files to batches, as actors of a plan, in an order that is a function of seed, epoch and position.

    train = (data.images("train/").shuffle().batch(64)
             .decode(224, crop=data.random_resized_crop(), flip=0.5).normalize(MEAN, STD).on_error("replace", most=100))
    for x, y in train: ...

See docs/input-pipelines.md.
"""

from __future__ import annotations

from typing import Any

from sluice.data import _sources, augment as augment, records as _records
from sluice.data._pipeline import Errors as Errors, Pipeline as Pipeline
from sluice.data._stages import Crop as Crop, central_crop as central_crop, random_resized_crop as random_resized_crop
from sluice.data.records import Writer as RecordWriter

__all__ = ["Crop", "Errors", "Pipeline", "RecordWriter", "arrays", "augment", "central_crop", "csv", "dataset", "images", "lines",
           "random_resized_crop", "read_records", "records", "tar"]

read_records = _records.read


def images(folder: Any, *, seed: int = 0, index: Any = None) -> Pipeline:
    """JPEG and PNG files in a folder for each class: (encoded image, label); torchvision's ImageFolder. `classes` has the names.

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


def dataset(samples: Any, *, seed: int = 0) -> Pipeline:
    """Samples of a dataset of Python, as torch's: anything with len() and [i] that gives arrays, tensors and numbers."""
    return Pipeline(_sources.Items(samples), seed)
