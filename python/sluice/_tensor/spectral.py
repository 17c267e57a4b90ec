"""Short-time Fourier transforms: lines of overlapping frames."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._C import functional


def _window_of(name: str, window: Any, win_length: int, n_fft: int, like: Tensor) -> Tensor:
    """The window with zeros on both sides, n_fft long."""
    if window is None:
        window = fn.full((win_length,), 1.0, like.dtype.to_real())
    elif window.ndim != 1 or window._shape[0] != win_length:
        raise _C.RuntimeError(f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but got window with "
                              f"size {tuple(window._shape)}")
    left = (n_fft - win_length) // 2
    return _padded(window, left, n_fft - win_length - left, "constant") if win_length < n_fft else window


def _padded(x: Tensor, left: int, right: int, mode: str) -> Tensor:
    if x.is_complex():
        parts = [functional.pad(part.reshape(1, -1, part._shape[-1]), (left, right), mode=mode) for part in (x.real, x.imag)]
        return fn.complex(*parts).reshape(*x._shape[:-1], -1)
    return functional.pad(x.reshape(1, -1, x._shape[-1]), (left, right), mode=mode).reshape(*x._shape[:-1], -1)


def _lengths(name: str, n_fft: int, hop_length: Any, win_length: Any) -> tuple[int, int]:
    hop, length = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if n_fft <= 0:
        raise _C.RuntimeError(f"{name}: expected n_fft > 0, but got n_fft={n_fft}")
    if hop <= 0:
        raise _C.RuntimeError(f"{name}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise _C.RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={length}")
    return hop, length


def stft(input: Tensor, n_fft: int, hop_length: Any = None, win_length: Any = None, window: Any = None, center: bool = True,
         pad_mode: str = "reflect", normalized: bool = False, onesided: Any = None, return_complex: Any = None,
         align_to_window: Any = None) -> Tensor:
    """The transforms of frames of n_fft samples, `hop_length` apart, as (..., frequencies, frames); torch.stft."""
    if not input.is_floating_point() and not input.is_complex():
        raise _C.RuntimeError(f"stft: expected a tensor of floating point or complex values, but got {input.dtype}")
    complex_data = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None:
        if not complex_data:
            raise _C.RuntimeError("stft: requires the return_complex parameter be given for real inputs; give return_complex=True")
        return_complex = True
    if input.ndim not in (1, 2):
        raise _C.RuntimeError(f"stft: expected a 1D or 2D tensor, but got {input.ndim}D tensor")
    if align_to_window is not None and center:
        raise _C.RuntimeError("stft: align_to_window should only be set when center = false")
    hop, length = _lengths("stft", n_fft, hop_length, win_length)
    x = input
    if center:
        x = _padded(x, n_fft // 2, n_fft // 2, pad_mode)
    elif align_to_window:
        x = _padded(x, (length - n_fft) // 2, (length - n_fft) // 2, "constant") if length != n_fft else x
    if n_fft > x._shape[-1]:
        raise _C.RuntimeError(f"stft: expected 0 < n_fft <= {x._shape[-1]}, but got n_fft={n_fft}")
    frames = x.unfold(-1, n_fft, hop)
    if window is not None or length < n_fft:
        frames = frames * _window_of("stft", window, length, n_fft, input)
    onesided = not complex_data if onesided is None else onesided
    if onesided and complex_data:
        raise _C.RuntimeError("stft: Cannot have onesided output if window or input is complex")
    norm = "ortho" if normalized else None
    spectrum = (_C.fft.rfft if onesided else _C.fft.fft)(frames, norm=norm).transpose(-2, -1)
    return spectrum if return_complex else fn.view_as_real(spectrum)


def _overlapped(frames: Tensor, hop: int) -> Tensor:
    """The sums of frames (batch, count, n) laid `hop` apart."""
    batch, count, n = frames._shape
    total = n + hop * (count - 1)
    places = (fn.arange(0.0, float(count), 1.0, _C.int64).unsqueeze(1) * hop + fn.arange(0.0, float(n), 1.0, _C.int64)).flatten()
    return frames.new_zeros((batch, total)).index_add(1, places.to(frames.device), frames.reshape(batch, count * n))


def istft(input: Tensor, n_fft: int, hop_length: Any = None, win_length: Any = None, window: Any = None, center: bool = True,
          normalized: bool = False, onesided: Any = None, length: Any = None, return_complex: bool = False) -> Tensor:
    """The samples whose stft() is nearest to `input`; torch.istft."""
    if not input.is_complex():
        raise _C.RuntimeError("istft: requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    if input.ndim not in (2, 3) or input.numel() == 0:
        raise _C.RuntimeError(f"istft: expected a non-empty tensor with 2 or 3 dimensions, but got {tuple(input._shape)}")
    hop, win_length = _lengths("istft", n_fft, hop_length, win_length)
    if hop > win_length:
        raise _C.RuntimeError(f"istft: expected 0 < hop_length <= win_length, but got hop_length={hop}")
    bins = input._shape[-2]
    onesided = bins != n_fft if onesided is None else onesided
    if bins != (n_fft // 2 + 1 if onesided else n_fft):
        raise _C.RuntimeError(f"istft: expected the frequency dimension to match n_fft={n_fft}, onesided={onesided}, but got {bins}")
    if return_complex and onesided:
        raise _C.RuntimeError("istft: cannot have onesided output if window or input is complex")
    window = _window_of("istft", window, win_length, n_fft, input)
    if window.is_complex() and not return_complex:
        raise _C.RuntimeError("istft: Complex windows are incompatible with return_complex=False")
    spectrum = (input if input.ndim == 3 else input.unsqueeze(0)).transpose(1, 2)
    norm = "ortho" if normalized else None
    if return_complex:
        frames = _C.fft.ifft(spectrum, norm=norm)
    else:  # of real samples the first half says all
        frames = _C.fft.irfft(spectrum[..., :n_fft // 2 + 1], n=n_fft, norm=norm)
    count = frames._shape[1]
    signal = _overlapped(frames * window, hop)
    weight = _overlapped((window * window).reshape(1, 1, n_fft).expand(1, count, n_fft), hop)
    total = signal._shape[-1]
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - n_fft // 2 if center else total
    stop = min(end, total)
    signal, weight = signal[:, start:stop], weight[:, start:stop]
    if not _C.touches_graph(weight) and bool((weight.abs() < 1e-11).any()):
        raise _C.RuntimeError("istft: window overlap add min: 1, which must not be 0: the window is 0 where no other frame is")
    result = signal / weight
    if end > total:
        result = _padded(result, 0, end - total, "constant")
    return result if input.ndim == 3 else result.squeeze(0)


Tensor.stft = stft
Tensor.istft = istft
