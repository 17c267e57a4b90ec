"""torch.utils.tensorboard: event files that TensorBoard shows, written without TensorFlow or any other package.

    with SummaryWriter("runs/first") as writer:
        for step in range(100):
            writer.add_scalar("loss", loss, step)
            writer.add_histogram("weight", net.weight, step)
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from typing import Any

import numpy as np

from sluice.utils._framing import framed
from sluice.utils.tensorboard import _convert as convert
from sluice.utils.tensorboard import _wire as wire

__all__ = ["SummaryWriter"]

_files = itertools.count()
_OTHERS = ("add_audio_raw", "add_custom_scalars", "add_custom_scalars_marginchart", "add_custom_scalars_multilinechart", "add_embedding",
           "add_image_with_boxes", "add_mesh", "add_onnx_graph", "add_openvino_graph", "add_pr_curve", "add_pr_curve_raw", "add_tensor",
           "add_video")


class SummaryWriter:
    """Writes one event file into `log_dir` (runs/TIME_HOST + comment where that is None). Its methods may be called by several threads.

    max_queue, flush_secs: after so many events, or seconds, what was added is in the file; flush() and close() do that at once.
    purge_step: a run that was interrupted goes on there, and TensorBoard forgets what it had from that step on.
    """

    def __init__(self, log_dir: Any = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10, flush_secs: float = 120,
                 filename_suffix: str = "") -> None:
        host = socket.gethostname()
        self.log_dir = os.fspath(log_dir) if log_dir else os.path.join("runs", time.strftime("%b%d_%H-%M-%S_") + host + comment)
        self.max_queue, self.flush_secs, self.filename_suffix, self.purge_step = max_queue, flush_secs, filename_suffix, purge_step
        self._lock = threading.Lock()
        self._others: dict[str, SummaryWriter] = {}  # of add_scalars, by folder
        os.makedirs(self.log_dir, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{host}.{os.getpid()}.{next(_files)}{filename_suffix}"
        self._path = os.path.join(self.log_dir, name)
        self._file: Any = open(self._path, "wb")  # noqa: SIM115
        self._queued, self._flushed = 0, time.monotonic()
        self._event(wire.file_version())
        if purge_step is not None:
            self._event(wire.restart(), purge_step)
        self.flush()

    def __getattr__(self, name: str) -> Any:
        if name in _OTHERS:
            raise NotImplementedError(f"SummaryWriter.{name}: is not written here; tensorboardX.SummaryWriter has it (pip install tensorboardX), "
                                      "and takes tensor.numpy()")
        raise AttributeError(f"'SummaryWriter' object has no attribute '{name}'")

    def _event(self, content: bytes, step: Any = None, walltime: float | None = None) -> None:
        step = None if step is None else int(convert.scalar_of("global_step", step))
        record = framed(wire.event(time.time() if walltime is None else walltime, step, content))
        with self._lock:
            if self._file is None:
                raise ValueError(f"SummaryWriter: '{self._path}' is closed; make another writer")
            self._file.write(record)
            self._queued += 1
            if self._queued >= self.max_queue or time.monotonic() - self._flushed >= self.flush_secs:
                self._flush()

    def _flush(self) -> None:
        self._file.flush()
        self._queued, self._flushed = 0, time.monotonic()

    def _add(self, tag: str, data: bytes, step: Any, walltime: float | None, about: bytes = b"") -> None:
        self._event(wire.summary(wire.value(tag, data, about)), step, walltime)

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, walltime: float | None = None, new_style: bool = False,
                   double_precision: bool = False) -> None:
        value = convert.scalar_of("add_scalar", scalar_value)
        if not new_style and not double_precision:
            return self._add(tag, wire.single(2, value), global_step, walltime)
        about = wire.metadata("scalars", b"", wire.SCALAR_DATA)
        return self._add(tag, wire.part(8, wire.scalar_tensor(value, double_precision)), global_step, walltime, about)

    def add_scalars(self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None, walltime: float | None = None) -> None:
        """Several curves in one picture: each is a run of its own, in a folder beside the file."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            self._other(folder).add_scalar(main_tag, value, global_step, walltime)

    def _other(self, folder: str) -> SummaryWriter:
        with self._lock:
            if folder not in self._others:
                self._others[folder] = SummaryWriter(folder, max_queue=self.max_queue, flush_secs=self.flush_secs,
                                                     filename_suffix=self.filename_suffix)
            return self._others[folder]

    def add_histogram(self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow", walltime: float | None = None,
                      max_bins: int | None = None) -> None:
        """bins: "tensorflow", or what numpy.histogram takes."""
        histogram = convert.histogram_of("add_histogram", values, bins, max_bins)
        self._add(tag, wire.part(5, histogram.encoded()), global_step, walltime)

    def add_histogram_raw(self, tag: str, min: float, max: float, num: float, sum: float, sum_squares: float,  # noqa: A002
                          bucket_limits: Any, bucket_counts: Any, global_step: Any = None, walltime: float | None = None) -> None:
        limits, counts = convert.array_of(bucket_limits).tolist(), convert.array_of(bucket_counts).tolist()
        if len(limits) != len(counts):
            raise ValueError(f"SummaryWriter.add_histogram_raw: {len(limits)} limits and {len(counts)} counts; must be equally many")
        self._add(tag, wire.part(5, wire.Histogram(min, max, num, sum, sum_squares, limits, counts).encoded()), global_step, walltime)

    def add_image(self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None, dataformats: str = "CHW") -> None:
        """uint8, or numbers from 0 to 1."""
        self._add(tag, wire.part(4, convert.image_of(convert.pixels_of("add_image", img_tensor, dataformats))), global_step, walltime)

    def add_images(self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None, dataformats: str = "NCHW") -> None:
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: float | None = None) -> None:
        """A figure of matplotlib, or a list of figures of one size."""
        figures = list(figure) if isinstance(figure, (list, tuple)) else [figure]
        pixels = np.stack([convert.figure_pixels(f) for f in figures])
        if close:
            from matplotlib import pyplot

            for f in figures:
                pyplot.close(f)
        self.add_image(tag, pixels, global_step, walltime, "NHWC")

    def add_audio(self, tag: str, snd_tensor: Any, global_step: Any = None, sample_rate: int = 44100, walltime: float | None = None) -> None:
        """Numbers from -1 to 1, of one channel."""
        self._add(tag, wire.part(6, convert.audio_of("add_audio", snd_tensor, sample_rate)), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """Markdown."""
        about = wire.metadata("text", b"", wire.TENSOR_DATA)
        self._add(tag + "/text_summary", wire.part(8, wire.text_tensor([text_string])), global_step, walltime, about)

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """The graph that the model computes for inputs like these (a tensor, or a tuple of arguments)."""
        if input_to_model is None:
            raise ValueError("SummaryWriter.add_graph: input_to_model is None; must be a tensor or a tuple, with which the model is traced")
        self._event(wire.graph_event(convert.graph_of(model, input_to_model)))

    def add_hparams(self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any], hparam_domain_discrete: dict[str, list[Any]] | None = None,
                    run_name: str | None = None, global_step: Any = None) -> None:
        """A row of TensorBoard's table of settings and what they came to; in a folder beside the file."""
        settings = {k: v if isinstance(v, (bool, str)) else convert.scalar_of("add_hparams", v) for k, v in hparam_dict.items() if v is not None}
        names = ("experiment", "session_start_info", "session_end_info")
        with SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time()))) as other:
            for name, content in zip(names, wire.hparams(settings, metric_dict, hparam_domain_discrete or {})):
                other._add(f"_hparams_/{name}", b"", None, None, wire.metadata("hparams", content))
            for name, metric in metric_dict.items():
                other.add_scalar(name, metric, global_step)

    def get_logdir(self) -> str:
        return self.log_dir

    def flush(self) -> None:
        with self._lock:
            if self._file is not None:
                self._flush()
            others = list(self._others.values())
        for other in others:
            other.flush()

    def close(self) -> None:
        with self._lock:
            file, self._file = self._file, None
            others, self._others = list(self._others.values()), {}
        for other in others:
            other.close()
        if file is not None:
            file.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
