"""Pipelines as plans that run without Python."""

import hashlib
import io
import shutil
import subprocess
import tarfile

import numpy as np
import pytest

import sluice as sl
from sluice import data
from sluice._base.tools import find_tool

Image = pytest.importorskip("PIL.Image")
N = 23


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(1)
    for i in range(N):
        place = root / "files" / f"class{i % 3}"
        place.mkdir(exist_ok=True, parents=True)
        pixels = np.kron(rng.integers(0, 255, (5, 6, 3), np.uint8), np.ones((8, 8, 1), np.uint8))
        Image.fromarray(pixels).save(place / f"{i:03}.{'png' if i % 5 == 0 else 'jpg'}")
    with tarfile.open(root / "train.tar", "w") as tar:
        for i, file in enumerate(sorted((root / "files").glob("*/*"))):
            tar.add(file, f"{i:04}{file.suffix}")
            label = tarfile.TarInfo(f"{i:04}.cls")
            label.size = 1
            tar.addfile(label, io.BytesIO(str(i % 7).encode()))
    with data.RecordWriter(root / "train.rec") as records:
        for i, file in enumerate(sorted((root / "files").glob("*/*"))):
            records.write(file.read_bytes(), label=i)
    return root


def digest_of(batches):
    """What sluice-run --hash says of these results."""
    digest = ""
    for batch in batches:
        for value in batch if isinstance(batch, (tuple, list)) else [batch]:
            content = hashlib.sha256(np.ascontiguousarray(value.numpy()).tobytes()).hexdigest()
            digest = hashlib.sha256((digest + content).encode()).hexdigest()
    return digest


def run(bundle, *options):
    return subprocess.run([find_tool("sluice-run"), bundle, *options], capture_output=True, text=True, check=True).stdout


def failing(bundle, *options):
    done = subprocess.run([find_tool("sluice-run"), bundle, *options], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    return done.stderr


def same(a, b):
    return len(a) == len(b) and all(x.shape == y.shape and (x.numpy() == y.numpy()).all() for x, y in zip(a, b))


def decoded(pipeline):
    return pipeline.batch(5).decode(16, crop=data.random_resized_crop(), flip=0.5).normalize([0.5] * 3, [0.2] * 3)


CHOICES = {
    "in order": lambda p: p,
    "shuffled": lambda p: p.shuffle(seed=7),
    "a large seed": lambda p: p.shuffle(seed=2**64 - 3),
    "of the second of three ranks": lambda p: p.shuffle().shard(1, 3),
    "without what does not come out even": lambda p: p.shuffle().shard(2, 3, "drop"),
    "some": lambda p: p.skip(4).take(9).shuffle(),
    "chosen": lambda p: p.filter(lambda sample: sample[1] != 1).shuffle(),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_a_graph_of_a_pipeline_gives_the_batches_of_the_pipeline(folder, choice):
    pipeline = decoded(CHOICES[choice](data.images(folder / "files", seed=3)).repeat())
    graph = pipeline.as_graph()
    for wanted, _ in zip(pipeline, range(9)):  # over the borders of epochs
        assert same(graph()[:2], wanted)


@pytest.mark.parametrize("source", ["tar", "records", "arrays"])
def test_tars_records_and_arrays_need_no_python_either(folder, source):
    if source == "arrays":
        x = np.random.default_rng(2).random((N, 3, 2)).astype(np.float32)
        pipeline = data.arrays(x, np.arange(N), np.arange(N) % 2 == 0).shuffle().repeat().batch(5).map(lambda x, y, z: (x * 2, y, z))
    else:
        files = data.tar(folder / "train.tar") if source == "tar" else data.records(folder / "train.rec")
        pipeline = decoded(files.shuffle().repeat())
    graph = pipeline.as_graph()
    for wanted, _ in zip(pipeline, range(9)):
        assert same(graph()[:-1], wanted)


@pytest.mark.parametrize("drop_last", [False, True])
def test_behind_the_end_there_are_no_samples(drop_last):
    pipeline = data.arrays(np.arange(10, 20)).repeat(2).batch(6, drop_last)
    graph = pipeline.as_graph()
    got = [(x.tolist(), ids.tolist()) for x, ids in (graph() for _ in range(5))]
    ids = np.concatenate([ids for _, ids in got])
    there = 18 if drop_last else 20
    assert (ids[:there] == np.arange(there) % 10).all() and (ids[there:] == -1).all()
    assert all(x == [i + 10 if i >= 0 else 0 for i in ids] for x, ids in got)


def test_a_saved_pipeline_goes_on_where_it_stood_without_python(folder, tmp_path):
    pipeline = decoded(data.images(folder / "files").shuffle(seed=5).repeat())
    batches = iter(pipeline)
    for _ in range(4):
        next(batches)
    sl.save(pipeline, tmp_path / "input")
    wanted = [next(batches) for _ in range(10)]
    saved = sl.load_graph(tmp_path / "input")
    got = [saved() for _ in range(10)]
    assert all(same(g[:2], w) for g, w in zip(got, wanted))
    digests = {run(tmp_path / "input", "--steps=10", "--hash", f"--cores={cores}").strip() for cores in (1, 2)}
    assert digests == {digest_of(got)}
    run(tmp_path / "input", "--steps=10", "--hash", f"--output=output1=@{tmp_path / 'labels.npy'}")  # of the last step
    assert (np.load(tmp_path / "labels.npy") == got[-1][1].numpy()).all()


@pytest.mark.parametrize("source", ["images", "tar"])
def test_files_may_lie_elsewhere_than_where_the_plan_was_made(folder, tmp_path, monkeypatch, source):
    here, there, bundle = tmp_path / "here", tmp_path / "there", tmp_path / "input"
    shutil.copytree(folder, here)
    monkeypatch.chdir(tmp_path)
    for root in (here, "here"):  # names that are absolute, and relative ones
        pipeline = data.images(f"{root}/files") if source == "images" else data.tar(f"{root}/train.tar")
        sl.save(decoded(pipeline.shuffle().repeat()), bundle)
        wanted = run(bundle, "--steps=5", "--hash")
        here.rename(there)
        assert run(bundle, "--steps=5", "--hash", f"--data-root={root}={there}") == wanted
        assert f"{root}/" in failing(bundle)
        assert f"{tmp_path}/nowhere/" in failing(bundle, f"--data-root={root}={tmp_path}/nowhere")
        there.rename(here)
    monkeypatch.chdir(folder)
    assert run(bundle, "--steps=5", "--hash", f"--data-root=={tmp_path}") == wanted


def test_folders_of_files_that_say_nothing_are_errors(tmp_path):
    sl.save(data.arrays(np.arange(10)).batch(5), tmp_path / "input")
    assert "data_roots: plan 'input' opens no files; must be none" in failing(tmp_path / "input", "--data-root=a=b")
    assert "data_roots: 'a' is to be found in ''; must be a folder" in failing(tmp_path / "input", "--data-root=a=")
    assert "--data-root a: must be FOLDER=FOLDER" in failing(tmp_path / "input", "--data-root=a")


def test_broken_images_are_replaced_without_python(folder, tmp_path):
    place = tmp_path / "class0"
    place.mkdir()
    for i, file in enumerate(sorted((folder / "files").glob("*/*.jpg"))[:6]):
        (place / f"{i}.jpg").write_bytes(file.read_bytes() if i != 2 else b"no image")
    pipeline = data.images(tmp_path).batch(6).decode(16).on_error("replace")
    images, labels, ids = pipeline.as_graph()()
    assert same((images, labels), next(iter(pipeline))) and (images[2].numpy() == images[3].numpy()).all()
    with pytest.raises(ValueError, match="2.jpg"):
        data.images(tmp_path).batch(6).decode(16).as_graph()()[0].numpy()


def test_a_graph_goes_on_with_the_pass_or_begins_the_next():
    pipeline = data.arrays(np.arange(9)).shuffle().batch(2, drop_last=True)
    batches = iter(pipeline)
    next(batches)
    within = pipeline.as_graph()
    assert [within()[0].tolist() for _ in range(3)] == [batch.tolist() for batch in batches]
    behind = pipeline.as_graph()
    assert [behind()[0].tolist() for _ in range(4)] == [batch.tolist() for batch in pipeline]


REFUSED = [
    (lambda: data.dataset(range(9)).batch(3), TypeError, "Python makes these samples"),
    (lambda: data.arrays(np.arange(9)).map(lambda x: x).batch(3), TypeError, "functions behind batch"),
    (lambda: data.arrays(np.arange(9)).shuffle(order="torch").batch(3), ValueError, "torch's order"),
    (lambda: data.arrays(np.arange(9)).bucket(np.arange(9)).batch(3), ValueError, r"bucket\(\)"),
    (lambda: data.arrays(np.arange(9)).batch(3).on_error("skip"), ValueError, "use 'replace'"),
    (lambda: data.arrays(np.arange(9)).take(0).batch(3), ValueError, "an epoch without samples"),
    (lambda: data.arrays(np.arange(9)), ValueError, r"without batch\(\)"),
]


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_pipelines_that_need_python_say_so(k, tmp_path):
    pipeline, kind, text = REFUSED[k]
    with pytest.raises(kind, match=text):
        sl.save(pipeline(), tmp_path / "input")
    assert not (tmp_path / "input").exists()
