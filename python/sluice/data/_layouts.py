"""Data sets as their makers lay them out: MNIST, CIFAR, COCO, VOC, and tables of Parquet."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import xml.etree.ElementTree as xml
from typing import Any, Iterable

import numpy as np

from sluice.data import _index
from sluice.data._combined import Zipped
from sluice.data._index import Texts
from sluice.data._sources import Arrays, Files

_VOC = ("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog", "horse", "motorbike",
        "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor")


def _found(where: str, folder: Any, names: Iterable[str]) -> str:
    """The first of these names that is there."""
    paths = [os.path.join(os.fspath(folder), name) for name in names]
    path = next((p for p in paths if os.path.exists(p)), None)
    if path is None:
        raise FileNotFoundError(f"{where}: {paths[0]}: there is no such file; must be it, or one of {', '.join(paths[1:])}")
    return path


def _idx(path: str, axes: int) -> Any:
    """An array of bytes in MNIST's format: 0, 0, 8 (bytes), how many axes, their sizes, and what is in it."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        try:
            content = file.read()
        except (OSError, EOFError) as error:
            raise ValueError(f"data.mnist: {path}: cannot be unpacked: {error}") from None
    shape = tuple(np.frombuffer(content[4:4 + 4 * axes], ">u4").astype(int).tolist())
    if content[:4] != bytes([0, 0, 8, axes]) or len(content) != 4 + 4 * axes + int(np.prod(shape, dtype=object)):
        raise ValueError(f"data.mnist: {path}: {len(content)} bytes, which begin by {content[:4].hex()}; must be a file of {axes} axes of bytes")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def mnist(folder: Any, train: bool) -> Arrays:
    which = "train" if train else "t10k"

    def read(kind: str, axes: int) -> Any:
        name = f"{which}-{kind}-idx{axes}-ubyte"
        return _idx(_found("data.mnist", folder, [place + name + end for place in ("", "MNIST/raw/") for end in ("", ".gz")]), axes)

    x, y = read("images", 3), read("labels", 1)
    if len(x) != len(y):
        raise ValueError(f"data.mnist: {folder}: {len(x)} images and {len(y)} labels; must be as many")
    return Arrays(x[:, None], y.astype(np.int64))


class _Plain(pickle.Unpickler):
    """Reads pickles of arrays, texts and numbers, and calls nothing else that they name."""

    _NAMES = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"),
              ("numpy", "dtype"), ("_codecs", "encode")}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._NAMES:
            raise pickle.UnpicklingError(f"it names {module}.{name}; must have arrays, texts and numbers alone")
        return super().find_class(module, name)


def cifar(folder: Any, classes: int, train: bool) -> Arrays:
    if classes not in (10, 100):
        raise ValueError(f"data.cifar: {classes} classes; must be 10 or 100")
    names = ([f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]) if classes == 10 else ["train" if train else "test"]
    places, parts = ("", f"cifar-{classes}-batches-bin/", f"cifar-{classes}-binary/", f"cifar-{classes}-batches-py/", f"cifar-{classes}-python/"), []
    for name in names:
        path = _found("data.cifar", folder, [place + name + end for place in places for end in (".bin", "")])
        parts.append(_cifar_binary(path, classes) if path.endswith(".bin") else _cifar_pickle(path, classes))
    x, y = (np.concatenate(arrays) for arrays in zip(*parts))
    return Arrays(x.reshape(-1, 3, 32, 32), y.astype(np.int64))


def _cifar_binary(path: str, classes: int) -> tuple[Any, Any]:
    rows, labels = np.fromfile(path, np.uint8), 1 if classes == 10 else 2
    if not len(rows) or len(rows) % (labels + 3072):
        raise ValueError(f"data.cifar: {path}: {len(rows)} bytes; must be a multiple of {labels + 3072}, and some")
    rows = rows.reshape(-1, labels + 3072)
    return rows[:, labels:], rows[:, labels - 1]


def _cifar_pickle(path: str, classes: int) -> tuple[Any, Any]:
    try:
        with open(path, "rb") as file:
            content = _Plain(io.BytesIO(file.read()), encoding="latin1").load()
        x, y = np.asarray(content["data"]), np.asarray(content["labels" if classes == 10 else "fine_labels"])
        if x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != 3072 or y.shape != (len(x),):
            raise ValueError(f"it has {x.dtype}{x.shape} and labels {y.shape}; must be bytes of 3072 an image")
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ValueError(f"data.cifar: {path}: is no file of CIFAR-{classes}: {error}") from None
    return x, y


def _objects(where: str, paths: list[str], objects: list[list[tuple[Any, int]]], classes: list[str], most: int | None) -> Zipped:
    """Images with boxes, as parts of the image from 0 to 1, and classes; as many for each as the one with most has, or `most`."""
    if not paths:
        raise ValueError(f"{where}: has no images; must have some")
    counts = np.array([len(o) for o in objects], np.int64)
    room = max(int(counts.max()), 1) if most is None else most
    if counts.max() > room:
        i = int(counts.argmax())
        raise ValueError(f"{where}: {paths[i]} has {counts[i]} objects; most= allows {room}")
    boxes, kinds = np.zeros((len(paths), room, 4), np.float32), np.full((len(paths), room), -1, np.int64)
    for row, found in enumerate(objects):
        for k, (box, kind) in enumerate(found):
            boxes[row, k], kinds[row, k] = box, kind
    names = Texts.of(paths)
    files = Files(names, counts, _index.fingerprint(names.data, boxes, kinds), classes=classes)
    source = Zipped([files, Arrays(boxes, kinds)])
    source.boxes = True
    return source


def coco(folder: Any, annotations: Any, most: int | None, crowds: bool) -> Zipped:
    path = os.fspath(annotations)
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
            images = {image["id"]: image for image in content["images"]}
            kinds = sorted(content["categories"], key=lambda kind: kind["id"])
            places = {kind["id"]: k for k, kind in enumerate(kinds)}
            objects: dict[Any, list[Any]] = {i: [] for i in images}
            for found in content["annotations"]:
                if found.get("iscrowd", 0) and not crowds:
                    continue
                image, (x, y, w, h) = images[found["image_id"]], found["bbox"]
                wide, high = image["width"], image["height"]
                objects[found["image_id"]].append(((x / wide, y / high, (x + w) / wide, (y + h) / high), places[found["category_id"]]))
            paths = [os.path.join(os.fspath(folder), image["file_name"]) for image in images.values()]
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise ValueError(f"data.coco: {path}: is no file of COCO's instances: {type(error).__name__}: {error}; must have images, categories, "
                             "and annotations with a bbox") from None
    return _objects("data.coco", paths, list(objects.values()), [kind["name"] for kind in kinds], most)


def voc(folder: Any, image_set: str, year: str, most: int | None, difficult: bool) -> Zipped:
    listed = os.path.join("ImageSets", "Main", f"{image_set}.txt")
    path = _found("data.voc", folder, [os.path.join(place, listed) for place in (f"VOCdevkit/VOC{year}", f"VOC{year}", "")])
    root = path[:-len(listed)]
    with open(path) as file:
        keys = [line.split()[0] for line in file if line.strip()]
    objects = [_voc_objects(os.path.join(root, "Annotations", f"{key}.xml"), difficult) for key in keys]
    return _objects("data.voc", [os.path.join(root, "JPEGImages", f"{key}.jpg") for key in keys], objects, list(_VOC), most)


def _voc_objects(path: str, difficult: bool) -> list[Any]:
    try:
        tree = xml.parse(path).getroot()
        wide, high = (float(tree.findtext(f"size/{side}", "")) for side in ("width", "height"))
        found = []
        for item in tree.iter("object"):
            if item.findtext("difficult", "0").strip() == "1" and not difficult:
                continue
            x0, y0, x1, y1 = (float(item.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax"))
            kind = _VOC.index(item.findtext("name", "").strip())
            found.append((((x0 - 1) / wide, (y0 - 1) / high, x1 / wide, y1 / high), kind))  # pixels count from 1, both ends within
        return found
    except (xml.ParseError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"data.voc: {path}: is no annotation of VOC: {error}") from None


def parquet(path: Any, columns: Any, label: Any) -> Arrays:
    try:
        from pyarrow import parquet as files
    except ImportError:
        raise ImportError("data.parquet: needs the package pyarrow; install it (pip install pyarrow)") from None
    path = os.fspath(path)
    there = files.read_schema(path).names
    wanted = [c for c in there if c != label] if columns is None else list(columns)
    for name in [*wanted, *([] if label is None else [label])]:
        if name not in there:
            raise ValueError(f"data.parquet: {path}: has no column '{name}'; must be one of {', '.join(there)}")
    table = files.read_table(path, columns=[*wanted, *([] if label is None else [label])])

    def numbers(name: str, dtype: Any) -> Any:
        column = table[name]
        if column.null_count:
            raise ValueError(f"data.parquet: {path}: column '{name}' has {column.null_count} places without a value; must have a number in each")
        try:
            return column.to_numpy().astype(dtype)
        except (TypeError, ValueError):
            raise ValueError(f"data.parquet: {path}: column '{name}' is {column.type}; must be of numbers") from None

    x = np.stack([numbers(name, np.float32) for name in wanted], 1)
    return Arrays(x) if label is None else Arrays(x, numbers(label, np.int64))
