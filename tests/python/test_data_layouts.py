"""sluice.data: data sets as their makers lay them out."""

import gzip
import json
import pickle
import sys

import numpy as np
import pytest

from sluice import data

RNG = np.random.default_rng(0)


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def whole(pipeline):
    batch = next(iter(pipeline.batch(100)))
    return [v.numpy() for v in (batch if isinstance(batch, tuple) else (batch,))]


@pytest.mark.parametrize("packed", [False, True])
def test_mnist(tmp_path, packed):
    folder = tmp_path / "MNIST" / "raw" if packed else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    x, y = RNG.integers(0, 256, (7, 28, 28), np.uint8), RNG.integers(0, 10, 7).astype(np.uint8)
    for name, array in (("t10k-images-idx3-ubyte", x), ("t10k-labels-idx1-ubyte", y)):
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    images, labels = whole(data.mnist(tmp_path, train=False))
    assert np.array_equal(images[:, 0], x) and labels.tolist() == y.tolist() and labels.dtype == np.int64
    with pytest.raises(FileNotFoundError, match="data.mnist: .*train-images-idx3-ubyte: there is no such file; must be it, or one of"):
        data.mnist(tmp_path)
    path = folder / ("t10k-labels-idx1-ubyte" + ".gz" * packed)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="data.mnist: .*labels.*(must be a file of 1 axes of bytes|cannot be unpacked)"):
        data.mnist(tmp_path, train=False)


def binary(labels, x):
    return np.concatenate([*(label[:, None] for label in labels), x], 1).astype(np.uint8).tobytes()


def test_cifar_in_both_of_its_versions(tmp_path):
    x, y, coarse = RNG.integers(0, 256, (25, 3072), np.uint8), RNG.integers(0, 10, 25), RNG.integers(0, 20, 25)
    for folder, make in (("bin", lambda i: binary([y[i:i + 5]], x[i:i + 5])),
                         ("py", lambda i: pickle.dumps({"data": x[i:i + 5], "labels": y[i:i + 5].tolist()}, protocol=2))):
        place = tmp_path / folder / f"cifar-10-batches-{folder}"
        place.mkdir(parents=True)
        for i in range(5):
            (place / f"data_batch_{i + 1}{'.bin' if folder == 'bin' else ''}").write_bytes(make(5 * i))
        images, labels = whole(data.cifar(tmp_path / folder))
        assert np.array_equal(images, x.reshape(-1, 3, 32, 32)) and labels.tolist() == y.tolist()
    (tmp_path / "test.bin").write_bytes(binary([coarse, y], x))
    images, labels = whole(data.cifar(tmp_path, classes=100, train=False))
    assert np.array_equal(images, x.reshape(-1, 3, 32, 32)) and labels.tolist() == y.tolist()
    (tmp_path / "test.bin").write_bytes(b"0" * 100)
    with pytest.raises(ValueError, match="data.cifar: .*test.bin: 100 bytes; must be a multiple of 3074"):
        data.cifar(tmp_path, classes=100, train=False)


class Runs:
    def __reduce__(self):
        return exec, (f"import {__name__} as m; m.RAN.append(1)",)


RAN = []


@pytest.mark.parametrize("content", [pickle.dumps({"data": Runs()}), b"junk", pickle.dumps([1]), pickle.dumps({"data": [1], "labels": [1]}), b""])
def test_a_pickle_of_cifar_runs_nothing(tmp_path, content):
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match="data.cifar: .*test_batch: is no file of CIFAR-10: "):
        data.cifar(tmp_path, train=False)
    assert not RAN


def jpegs(folder, names):
    Image = pytest.importorskip("PIL.Image")
    folder.mkdir(parents=True)
    for i, name in enumerate(names):
        Image.fromarray(np.full((20, 40, 3), 60 * i, np.uint8)).save(folder / name, quality=95)


def coco(root):
    jpegs(root / "images", ["a.jpg", "b.jpg", "c.jpg"])
    content = {"images": [{"id": 9 - i, "file_name": name, "width": 40, "height": 20} for i, name in enumerate(["a.jpg", "b.jpg", "c.jpg"])],
               "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}],
               "annotations": [{"image_id": 9, "category_id": 18, "bbox": [4, 5, 10, 10]}, {"image_id": 7, "category_id": 3, "bbox": [0, 0, 40, 20]},
                               {"image_id": 9, "category_id": 3, "bbox": [0, 0, 1, 1], "iscrowd": 1},
                               {"image_id": 9, "category_id": 3, "bbox": [20, 10, 20, 5]}]}
    (root / "instances.json").write_text(json.dumps(content))
    return data.coco(root / "images", root / "instances.json")


VOC = """<annotation><size><width>40</width><height>20</height></size>
<object><name>dog</name><difficult>0</difficult><bndbox><xmin>5</xmin><ymin>6</ymin><xmax>14</xmax><ymax>15</ymax></bndbox></object>
<object><name>cat</name><difficult>1</difficult><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>40</xmax><ymax>20</ymax></bndbox></object>
</annotation>"""


def voc(root):
    base = root / "VOCdevkit" / "VOC2012"
    jpegs(base / "JPEGImages", ["x.jpg", "y.jpg"])
    for folder in ("Annotations", "ImageSets/Main"):
        (base / folder).mkdir(parents=True)
    for name in "xy":
        (base / "Annotations" / f"{name}.xml").write_text(VOC)
    (base / "ImageSets" / "Main" / "train.txt").write_text("x\ny\n")
    return base


def test_coco_has_boxes_beside_images(tmp_path):
    pipeline = coco(tmp_path)
    assert pipeline.classes == ["car", "dog"]
    for shuffled in (pipeline, pipeline.shuffle()):
        x, n, boxes, kinds = next(iter(shuffled.batch(3).decode(8)))
        rows = {round(float(v) / 60): k for k, v in enumerate(x[:, 0, 0, 0].tolist())}
        assert sorted(rows) == [0, 1, 2] and x.shape == (3, 3, 8, 8)
        assert [n.tolist()[rows[i]] for i in range(3)] == [2, 0, 1]
        assert [kinds.tolist()[rows[i]] for i in range(3)] == [[1, 0], [-1, -1], [0, -1]]
        np.testing.assert_allclose(boxes.numpy()[rows[0]], [[0.1, 0.25, 0.35, 0.75], [0.5, 0.5, 1, 0.75]])
    with pytest.raises(ValueError, match="decode: crop or flip of images with boxes"):
        pipeline.batch(2).decode(8, flip=0.5)
    with pytest.raises(ValueError, match=r"data.coco: .*a.jpg has 2 objects; most= allows 1"):
        data.coco(tmp_path / "images", tmp_path / "instances.json", most=1)
    for wrong in ("{}", "[", '{"images": [], "categories": [], "annotations": [{"image_id": 1}]}'):
        (tmp_path / "instances.json").write_text(wrong)
        with pytest.raises(ValueError, match="data.coco: .*instances.json: is no file of COCO's instances"):
            data.coco(tmp_path / "images", tmp_path / "instances.json")


def test_voc_has_boxes_beside_images(tmp_path):
    base = voc(tmp_path)
    for folder in (tmp_path, base):
        x, n, boxes, kinds = next(iter(data.voc(folder, most=3).batch(2).decode(8)))
        assert x.shape == (2, 3, 8, 8) and n.tolist() == [1, 1] and kinds.tolist() == [[11, -1, -1]] * 2
        np.testing.assert_allclose(boxes.numpy()[0, 0], [0.1, 0.25, 0.35, 0.75])
    assert next(iter(data.voc(tmp_path, difficult=True).batch(2).decode(8)))[3].tolist() == [[11, 7]] * 2
    for wrong in (VOC[:40], VOC.replace("dog", "wolf"), VOC.replace("<xmin>5</xmin>", "")):
        (base / "Annotations" / "y.xml").write_text(wrong)
        with pytest.raises(ValueError, match="data.voc: .*y.xml: is no annotation of VOC: "):
            data.voc(tmp_path)


def test_parquet_has_columns_as_csv(tmp_path):
    import pyarrow
    from pyarrow import parquet

    table = {"a": [1.5, 2.5, 3.5], "b": [1, 2, 3], "kind": [0, 1, 0], "name": ["x", "y", "z"], "gap": [1, None, 3]}
    parquet.write_table(pyarrow.table(table), tmp_path / "t")
    x, y = whole(data.parquet(tmp_path / "t", ["a", "b"], "kind"))
    assert x.tolist() == [[1.5, 1], [2.5, 2], [3.5, 3]] and y.tolist() == [0, 1, 0] and x.dtype == np.float32
    for columns, text in ((["c"], "has no column 'c'; must be one of a, b, kind, name, gap"),
                          (["name"], "column 'name' is (large_)?string; must be of numbers"),
                          (["gap"], "column 'gap' has 1 places without a value")):
        with pytest.raises(ValueError, match=f"data.parquet: .*{text}"):
            data.parquet(tmp_path / "t", columns)


def test_a_reader_that_is_not_installed_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"data.parquet: needs the package pyarrow; install it \(pip install pyarrow\)"):
        data.parquet(tmp_path / "t")
