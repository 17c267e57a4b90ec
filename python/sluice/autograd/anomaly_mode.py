"""Naming the call whose gradient goes wrong: torch.autograd.anomaly_mode."""

from __future__ import annotations

import threading
from typing import Any

from sluice import _C


class _State(threading.local):
    on, check_nan = False, True


_state = _State()


class set_detect_anomaly:
    """Turns detect_anomaly on or off at once; as a context manager also restores what was."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = (_state.on, _state.check_nan)
        _C.push_anomaly(bool(mode), bool(check_nan))
        _state.on, _state.check_nan = bool(mode), bool(check_nan)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: Any) -> None:
        _C.pop_anomaly()
        _state.on, _state.check_nan = self._before


class detect_anomaly:
    """Errors of backward passes name the line of the forward call, and with `check_nan` a gradient with a NaN is an error.

    Both the forward call and the backward pass must be inside, on the same thread. It is slow; graphs have
    `config.enable_check_numerics()`, which this does not replace. torch.autograd.detect_anomaly.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan

    def __enter__(self) -> None:
        self._set = set_detect_anomaly(True, self._check_nan)

    def __exit__(self, *exc: Any) -> None:
        self._set.__exit__()


def is_anomaly_enabled() -> bool:
    return _state.on


def is_anomaly_check_nan_enabled() -> bool:
    return _state.check_nan
