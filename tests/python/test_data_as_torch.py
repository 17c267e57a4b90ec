"""sluice.data for who comes from torch: its orders of samples, and torchvision's transforms."""

import importlib.util
import pathlib

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

import sluice as sl
from sluice import data


def numbers(n):
    return data.arrays(np.arange(n))


def flat(batches):
    return [v for batch in batches for v in batch.tolist()]


@pytest.mark.parametrize("seed", [0, 7])
def test_the_order_is_that_of_torchs_loader(seed):
    loader = DataLoader(torch.arange(23), 4, shuffle=True, generator=torch.Generator().manual_seed(seed))
    want = [flat(loader) for _ in range(3)]
    pipeline = numbers(23).shuffle(seed, order="torch").batch(4)
    assert [flat(pipeline) for _ in range(3)] == want
    assert flat(numbers(23).shuffle(seed, order="torch").repeat(3).batch(23)) == sum(want, [])
    first = numbers(23).shuffle(seed, order="torch").repeat().batch(5)
    steps = iter(first)
    got = flat(next(steps) for _ in range(7))
    again = numbers(23).shuffle(seed, order="torch").repeat().batch(5)
    again.load_state_dict(first.state_dict())
    assert got + flat(x for x, _ in zip(again, range(6))) == sum(want, [])[:65]


@pytest.mark.parametrize("drop", [False, True])
def test_the_order_is_that_of_torchs_distributed_sampler(drop):
    for rank in range(3):
        sampler = DistributedSampler(range(23), 3, rank, seed=5, drop_last=drop)
        pipeline = numbers(23).shuffle(5, order="torch").shard(rank, 3, "drop" if drop else "pad").batch(4)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            assert flat(pipeline) == list(sampler)


def test_other_orders_are_told():
    with pytest.raises(ValueError, match="shuffle: order: 'numpy'; must be 'sluice' or 'torch'"):
        numbers(3).shuffle(order="numpy")


# torchvision's transforms.

ROOT = pathlib.Path(__file__).resolve().parents[2]
BESIDE = ROOT / ".venv/torchvision"  # which tools/setup.sh keeps there for tests
INSTALLED = importlib.util.find_spec("torchvision") is not None
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture(scope="module")
def vision():
    """torchvision's transforms of both versions, within mock_torch."""
    if not INSTALLED and not BESIDE.is_dir():
        pytest.skip("torchvision is not installed")
    with pytest.MonkeyPatch.context() as patch:
        if not INSTALLED:
            patch.syspath_prepend(str(BESIDE))
        with sl.mock_torch():
            from torchvision import transforms
            from torchvision.transforms import v2
        yield transforms, v2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    Image = pytest.importorskip("PIL.Image")
    root, draw = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    (root / "a").mkdir()
    for i in range(6):
        pixels = Image.fromarray(draw.integers(0, 256, (4, 4, 3), np.uint8))
        pixels.resize((240, 180 + 20 * i), Image.Resampling.BICUBIC).save(root / "a" / f"{i}.png")
    return root


def by_torchvision(transform, folder):
    from PIL import Image

    with sl.mock_torch():
        return np.stack([np.asarray(transform(Image.open(path).convert("RGB"))) for path in sorted((folder / "a").iterdir())])


@pytest.mark.filterwarnings("ignore:The transform `ToTensor:UserWarning")
@pytest.mark.parametrize("version", [0, 1])
def test_known_transforms_are_kernels_and_give_torchvisions_pixels(vision, folder, version):
    t = vision[version]
    for chain, most in (([t.Resize((20, 24))], 1.01), ([t.Resize(32), t.CenterCrop(28)], 24)):  # whole pixels of the file are cut out
        whole = t.Compose([*chain, t.ToTensor(), t.Normalize(MEAN, STD)])
        for pipeline in (data.images(folder).map(whole).batch(6), data.images(folder).batch(6).decode(whole)):
            assert len(pipeline._stages) == 1 and not pipeline._source.workers  # all is part of decoding
            x, _ = next(iter(pipeline))
            np.testing.assert_allclose(x.numpy(), by_torchvision(whole, folder), atol=most / 255 / min(STD))
    random = t.Compose([t.RandomResizedCrop(16, (0.5, 1)), t.RandomHorizontalFlip(0.5), t.ColorJitter(0.2, 0.2, 0.2, 0.1),
                        t.ToTensor(), t.Normalize(MEAN, STD), t.RandomErasing(1)])
    x, _ = next(iter(data.images(folder).map(random).batch(6)))
    assert x.shape == (6, 3, 16, 16) and x.dtype == sl.float32


def test_unknown_transforms_are_called_by_workers_and_the_rest_are_kernels(vision, folder):
    t = vision[0]
    chain = t.Compose([t.Resize((12, 12)), t.RandomSolarize(100, p=0.5), lambda image: image.rotate(90), t.ToTensor(), t.Normalize(MEAN, STD)])
    got = [list(data.images(folder).map(chain, workers=workers).shuffle().repeat(2).batch(6)) for workers in (0, 2)]
    for (x, _), (u, _) in zip(*got):
        assert sl.equal(x, u)
    assert len({x.numpy().tobytes() for x, _ in got[0]}) == 2  # an epoch draws other numbers
    pipeline = data.images(folder).map(chain).batch(6)
    assert len(pipeline._stages) == 1  # Normalize; decoding and what is before are Python's
    fixed = t.Compose([t.Resize((12, 12)), t.RandomSolarize(100, p=1), t.ToTensor(), t.Normalize(MEAN, STD)])
    x, _ = next(iter(data.images(folder).map(fixed).batch(6)))
    np.testing.assert_allclose(x.numpy(), by_torchvision(fixed, folder), atol=1e-5)
    with pytest.raises(ValueError, match=r"decode: Resize, RandomSolarize.* on batches: no kernels do them; map\(\) before batch\(\)"):
        data.images(folder).batch(6).decode(chain)


def test_transforms_of_arrays_and_of_torchs_datasets(vision, folder):
    from PIL import Image

    t, draw = vision[0], np.random.default_rng(1)
    x = draw.integers(0, 256, (8, 3, 10, 10), np.uint8)
    chain = t.Compose([t.RandomCrop(8, padding=2), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize([0.5] * 3, [0.5] * 3)])
    got, y = next(iter(data.arrays(x, np.arange(8)).map(chain).batch(8)))
    assert got.shape == (8, 3, 8, 8) and float(got.min()) >= -1 and y.tolist() == list(range(8))
    pictures = [(Image.fromarray(row.transpose(1, 2, 0)), i) for i, row in enumerate(x)]
    plain = t.Compose([t.ToTensor(), t.Normalize([0.5] * 3, [0.5] * 3)])
    got, y = next(iter(data.dataset(pictures).map(plain).batch(8)))
    np.testing.assert_allclose(got.numpy(), x / 127.5 - 1, atol=1e-6)
    with pytest.raises(ValueError, match="map: behind torchvision's transforms"):
        data.arrays(x).map(plain).map(abs)


def test_python_generators_are_as_before_behind_transforms(vision, folder):
    t = vision[0]
    before = sl.get_rng_state().tolist(), np.random.get_state()[1].tolist()
    next(iter(data.images(folder).map(t.Compose([t.Resize((12, 12)), t.RandomSolarize(100)])).batch(6)))
    assert (sl.get_rng_state().tolist(), np.random.get_state()[1].tolist()) == before


def test_a_training_in_torch_reads_the_memory_of_a_pipeline():  # DAL-05
    x, y = np.arange(24, dtype=np.float32).reshape(12, 2), np.arange(12)
    pipeline = data.arrays(x, y).shuffle(seed=1).batch(5)
    batches, seen = [], []
    for inputs, labels in data.torch_iter(pipeline):
        assert isinstance(inputs, torch.Tensor) and inputs.dtype == torch.float32 and labels.dtype == torch.int64
        batches.append((inputs, labels))
        seen += labels.tolist()
    assert sorted(seen) == list(range(12))
    for inputs, labels in batches:  # which stay what they were
        assert (inputs.numpy() == x[labels.numpy()]).all()
    ours = next(iter(pipeline))
    assert torch.from_dlpack(ours[0]).data_ptr() == ours[0].data_ptr()
    (alone,) = data.torch_iter(data.arrays(y).batch(12))
    assert alone.tolist() == y.tolist()
