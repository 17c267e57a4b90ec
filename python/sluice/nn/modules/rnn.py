"""Recurrent nets: RNN, LSTM and GRU, whole sequences and single steps. In nn.Graph the steps are unrolled."""

from __future__ import annotations

import math
import numbers
import warnings
from numbers import Integral
from typing import Any

from sluice._C import fn, Tensor
from sluice._tensor.creation import empty, zeros
from sluice.nn import functional as F
from sluice.nn import init
from sluice.nn.modules import _recurrence
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter
from sluice.nn.utils.rnn import PackedSequence, sizes_of_steps


class RNNBase(Module):
    """Layers of one kind, `mode`: RNN_TANH, RNN_RELU, LSTM or GRU; torch.nn.RNNBase."""

    _gates = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if mode not in self._gates:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        if isinstance(dropout, bool) or not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
        if dropout > 0 and num_layers == 1:
            warnings.warn("dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
                          f"greater than 1, but got dropout={dropout} and num_layers={num_layers}", stacklevel=3)
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if not isinstance(value, Integral):
                raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
            if value <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        gates, out = self._gates[mode] * hidden_size, proj_size or hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            width = input_size if layer == 0 else out * self._directions
            for suffix in ("", "_reverse")[:self._directions]:
                shapes = {"weight_ih": (gates, width), "weight_hh": (gates, out)}
                shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)} if bias else {}
                shapes |= {"weight_hr": (proj_size, hidden_size)} if proj_size else {}
                for name, shape in shapes.items():
                    setattr(self, f"{name}_l{layer}{suffix}", Parameter(empty(shape, device=device, dtype=dtype)))
                self._all_weights.append([f"{name}_l{layer}{suffix}" for name in shapes])
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing to do: weights are laid out for kernels when a graph is compiled."""

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    # Checks of arguments

    def check_input(self, input: Tensor, batch_sizes: Any) -> None:
        weight = self.weight_ih_l0
        if input.dtype is not weight.dtype:
            raise ValueError(f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). Convert input: "
                             f"input.to({weight.dtype}), or convert model: model.to({input.dtype})")
        if input.dim() != (2 if batch_sizes is not None else 3):
            raise RuntimeError(f"input must have {2 if batch_sizes is not None else 3} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}")

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Any) -> tuple[int, int, int]:
        """The shape of h_0: (num_layers * directions, batch, proj_size or hidden_size)."""
        batch = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        return self.num_layers * self._directions, batch, self.proj_size or self.hidden_size

    def check_hidden_size(self, hx: Tensor, expected_hidden_size: tuple[int, int, int],
                          msg: str = "Expected hidden size {}, got {}") -> None:
        if hx.shape != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Any) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """The state with its sequences in another order."""
        return hx if permutation is None else hx.index_select(1, permutation)

    def _check_rank(self, hx: Any, rank: int) -> None:
        if hx.dim() != rank:
            kind = "batched" if rank == 3 else "unbatched"
            raise RuntimeError(f"For {kind} {rank}-D input, hx should also be {rank}-D but got {hx.dim()}-D tensor")

    # The state as a tuple, so that all kinds go the same way: (h,), or (h, c) of an LSTM.

    def _states(self, hx: Any) -> tuple:
        return (hx,)

    def _of_states(self, states: tuple) -> Any:
        return states[0]

    def _zeros(self, input: Tensor, batch: int) -> tuple:
        return (self._zero_state(input, batch, self.proj_size or self.hidden_size),)

    def _zero_state(self, input: Tensor, batch: int, width: int) -> Tensor:
        device = None if input._traced else input.device
        return zeros(self.num_layers * self._directions, batch, width, dtype=input.dtype, device=device)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(output, state) of a (time, batch, input_size) tensor (batch_first: batch before time), of an unbatched
        (time, input_size), or of a PackedSequence."""
        packed = input if isinstance(input, PackedSequence) else None
        if packed is not None:
            data, sizes = packed.data, sizes_of_steps(packed)
            if hx is not None:
                hx = self.permute_hidden(hx, packed.sorted_indices)
            self.check_input(data, sizes)
        else:
            data, sizes = input, None
            if data.dim() not in (2, 3):
                raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {data.dim()}D instead")
            if hx is not None:
                self._check_rank(hx, data.dim())
        single = packed is None and data.dim() == 2
        if single:
            data = data.unsqueeze(0 if self.batch_first else 1)
            hx = None if hx is None else self._of_states(tuple(s.unsqueeze(1) for s in self._states(hx)))
        self.check_input(data, sizes)
        if hx is None:
            hx = self._of_states(self._zeros(data, self.get_expected_hidden_size(data, sizes)[1]))
        self.check_forward_args(data, hx, sizes)
        if packed is None and self.batch_first:
            data = data.transpose(0, 1)
        if packed is None and data.size(0) == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        output, states = self._layers(data, sizes, self._states(hx))
        if packed is not None:
            output = PackedSequence(output, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
            return output, self.permute_hidden(self._of_states(states), packed.unsorted_indices)
        if self.batch_first:
            output = output.transpose(0, 1)
        if single:
            output, states = output.squeeze(0 if self.batch_first else 1), tuple(s.squeeze(1) for s in states)
        return output, self._of_states(states)

    def _layers(self, data: Tensor, sizes: Any, states: tuple) -> tuple[Tensor, tuple]:
        """All layers over (time, batch, width), or over packed (rows, width) with the batch sizes of the steps."""
        initial, last = [s.unbind(0) for s in states], []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self._directions):
                i = layer * self._directions + direction
                weights = {name.split("_l")[0]: getattr(self, name) for name in self._all_weights[i]}
                output, final = _recurrence.run(self.mode, data, sizes, tuple(s[i] for s in initial), weights, reverse=direction == 1)
                outputs.append(output)
                last.append(final)
            data = outputs[0] if len(outputs) == 1 else fn.cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                data = F.dropout(data, self.dropout, self.training)
        return data, tuple(fn.stack(s) for s in zip(*last))

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
                              ("bidirectional", False)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


class RNN(RNNBase):
    """h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), or relu of it (`nonlinearity`); torch.nn.RNN."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            nonlinearity, args = args[3], (*args[:3], *args[4:])
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory; the state is (h, c); proj_size: h is projected to so many elements. torch.nn.LSTM."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Any) -> tuple[int, int, int]:
        """The shape of c_0."""
        return *self.get_expected_hidden_size(input, batch_sizes)[:2], self.hidden_size

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Any) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden[0], self.get_expected_hidden_size(input, batch_sizes),
                               "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes), "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        return hx if permutation is None else tuple(s.index_select(1, permutation) for s in self._states(hx))

    def _check_rank(self, hx: Any, rank: int) -> None:
        h, c = self._states(hx)
        if h.dim() != rank or c.dim() != rank:
            kind = "batched" if rank == 3 else "unbatched"
            raise RuntimeError(f"For {kind} {rank}-D input, hx and cx should also be {rank}-D but got ({h.dim()}-D, {c.dim()}-D) "
                               "tensors")

    def _states(self, hx: Any) -> tuple:
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            raise TypeError(f"LSTM: hx is {type(hx).__name__}; must be a tuple of two tensors, (h_0, c_0)")
        return tuple(hx)

    def _of_states(self, states: tuple) -> Any:
        return states

    def _zeros(self, input: Tensor, batch: int) -> tuple:
        return (*super()._zeros(input, batch), self._zero_state(input, batch, self.hidden_size))


class GRU(RNNBase):
    """Gated recurrent units; torch.nn.GRU."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class RNNCellBase(Module):
    """One step of one layer; torch.nn.RNNCellBase."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(empty(rows, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, mode: str, input: Tensor, states: tuple | None, count: int = 1) -> tuple:
        name = self._get_name()
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for i, state in enumerate(states or ()):
            if state.dim() not in (1, 2):
                which = "hidden" if count == 1 else f"hx[{i}]"
                raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {state.dim()}D instead")
        single = input.dim() == 1
        x = input.unsqueeze(0) if single else input
        if x.size(1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {x.size(1)} expected {self.input_size}")
        if states is None:
            device = None if x._traced else x.device
            states = (zeros(x.size(0), self.hidden_size, dtype=x.dtype, device=device),) * count
        elif single:
            states = tuple(s.unsqueeze(0) if s.dim() == 1 else s for s in states)
        for i, state in enumerate(states):
            if state.size(0) != x.size(0):
                raise RuntimeError(f"Input batch size {x.size(0)} doesn't match hidden{i} batch size {state.size(0)}")
            if state.dim() != 2 or state.size(1) != self.hidden_size:
                raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {state.size(-1)}, expected {self.hidden_size}")
        weights = {n: p for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if (p := getattr(self, n)) is not None}
        result = _recurrence.step(mode, _recurrence.project(mode, x, weights), states, weights)
        return tuple(s.squeeze(0) for s in result) if single else result

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"


class RNNCell(RNNCellBase):
    """One step of an RNN; torch.nn.RNNCell."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(f"RNN_{self.nonlinearity.upper()}", input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (h, c) of the next; torch.nn.LSTMCell."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if hx is not None and (not isinstance(hx, (tuple, list)) or len(hx) != 2):
            raise RuntimeError(f"LSTMCell: Expected hx to be a tuple of two tensors, (h_0, c_0), got {type(hx).__name__}")
        return self._step("LSTM", input, hx, 2)


class GRUCell(RNNCellBase):
    """One step of a GRU; torch.nn.GRUCell."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("GRU", input, None if hx is None else (hx,))[0]
