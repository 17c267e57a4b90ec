"""Pooling layers, each by its function of sluice.nn.functional."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice.nn import functional as F
from sluice.nn.modules.conv import tuple_of
from sluice.nn.modules.module import Module


class _Pool(Module):
    function: Any = None  # of sluice.nn.functional
    dims = 0


class _MaxPoolNd(_Pool):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
                 ceil_mode: bool = False) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Any) -> Any:
        return type(self).function(input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
                                   return_indices=self.return_indices)

    def extra_repr(self) -> str:
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
                f"ceil_mode={self.ceil_mode}")


class MaxPool1d(_MaxPoolNd):
    function = F.max_pool1d


class MaxPool2d(_MaxPoolNd):
    function = F.max_pool2d


class MaxPool3d(_MaxPoolNd):
    function = F.max_pool3d


class _MaxUnpoolNd(_Pool):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = tuple_of(kernel_size, self.dims)
        self.stride = tuple_of(kernel_size if stride is None else stride, self.dims)
        self.padding = tuple_of(padding, self.dims)

    def forward(self, input: Any, indices: Any, output_size: Any = None) -> Tensor:
        return type(self).function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    dims, function = 1, F.max_unpool1d


class MaxUnpool2d(_MaxUnpoolNd):
    dims, function = 2, F.max_unpool2d


class MaxUnpool3d(_MaxUnpoolNd):
    dims, function = 3, F.max_unpool3d


class _AvgPoolNd(_Pool):
    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True) -> None:
        super().__init__()
        self.kernel_size = tuple_of(kernel_size, 1)
        self.stride = tuple_of(kernel_size if stride is None else stride, 1)
        self.padding = tuple_of(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Any) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPool(_AvgPoolNd):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True, divisor_override: Any = None) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Any) -> Tensor:
        return type(self).function(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
                                   self.divisor_override)


class AvgPool2d(_AvgPool):
    function = F.avg_pool2d


class AvgPool3d(_AvgPool):
    function = F.avg_pool3d


class _LPPoolNd(_Pool):
    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Any) -> Tensor:
        return type(self).function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
                f"ceil_mode={self.ceil_mode}")


class LPPool1d(_LPPoolNd):
    function = F.lp_pool1d


class LPPool2d(_LPPoolNd):
    function = F.lp_pool2d


class LPPool3d(_LPPoolNd):
    function = F.lp_pool3d


class _AdaptiveAvgPoolNd(_Pool):
    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Any) -> Tensor:
        return type(self).function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    function = F.adaptive_avg_pool1d


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    function = F.adaptive_avg_pool2d


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    function = F.adaptive_avg_pool3d


class _AdaptiveMaxPoolNd(_Pool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Any) -> Any:
        return type(self).function(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    function = F.adaptive_max_pool1d


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    function = F.adaptive_max_pool2d


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    function = F.adaptive_max_pool3d


class _FractionalMaxPool(_Pool):
    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
                 _random_samples: Any = None) -> None:
        super().__init__()
        name, n = self._get_name(), self.dims
        self.kernel_size = tuple_of(kernel_size, n)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else tuple_of(output_size, n)
        self.output_ratio = (output_ratio,) * n if isinstance(output_ratio, float) else output_ratio
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Any) -> Any:
        return type(self).function(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
                                               self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    dims, function = 2, staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    dims, function = 3, staticmethod(F.fractional_max_pool3d)
