"""What errors mean and what to do: the table that `python -m sluice.info explain` and docs/troubleshooting.md are made of.

`python -m sluice._troubles` writes the page's part. tests/python/test_troubleshooting.py has a program for each entry that
raises its text.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional


class Trouble(NamedTuple):
    """An error: its code, a part of its text, why it comes, what to do, and the section of troubleshooting.md it is in."""

    code: str
    text: str
    because: str
    do: str
    section: str


# By section: a letter's worth of codes, then "text | because | do this". A code stays with its text: new ones go to the end.
_SECTIONS = {
    ("E1", "Install, start, devices"): """
No module named 'sluice' | this Python has no Sluice | install the wheel, or `. ./activate`
could not be loaded | the CUDA backend, another backend, or the NVIDIA driver is not there | [devices.md](devices.md#cuda)
no such device | the index of the device is too large | `sluice-info` lists the devices
bad number of cores | `SLUICE_CORES` is not a positive number | unset it, or set a number
loaded before fork() | a graph is used in a forked child | compile it in the child, or start with `spawn`
Sluice leaves out | Sluice does not have this function of PyTorch or OneFlow | what the message names instead
got an unexpected keyword argument | the function has no argument of this name | `help(function)` shows its arguments
must be Tensor or Number, not | an operand is neither | `sluice.tensor(value)`
log: bad part | `SLUICE_LOG` or `set_log` names no level or area | [diagnostics.md](diagnostics.md#what-happens-the-log)
cannot be loaded | a library of ops is missing, or links something that is | check the path; `ldd` shows what is missing
Expected all tensors to be on the same device | one tensor is on `sim:0` or `cuda:0`, the other on the CPU | `.to(device)`
use tensor.cpu().numpy() | NumPy reads only memory of the host | `x.cpu().numpy()`
""",
    ("E2", "Graphs"): """
has no value while a graph is built | `build()` asks for a number, with `.item()`, `if` or `float()` | return the tensor; use `torch.where` or `torch.cond`
its result has no shape while a graph is built | the size of the result depends on data | the function that the message names, or `torch.where`
its content exists only when the graph runs | `x[mask]` in a graph | `torch.where(mask, x, 0)`
as when the graph was compiled | another shape or dtype than at the first call | `with_dynamic_input_shape()`, `config.set_dims`, or a second graph
compiled for the 6th time | an attribute changes in every call | make it an argument, or a buffer
keeps the mode of its first call | `train()` or `eval()` after the first call | make one graph for each mode
call super().__init__() before assigning | a graph's `__init__` begins without it | call `super().__init__()` first
build() must be defined | the graph has no method of that name | define `build`, not `forward`
is compiled; add optimizers before the first call | `add_optimizer` came after a call | add it in `__init__`
cannot be set after the graph was compiled | an option came after a call | set options in `__init__`
graph.config has no option | the option does not exist | the name that the message suggests
is not compiled; call it once | the graph has no plan yet | call it, or `graph.compile(*inputs)`
it was closed | `close()` ended this graph | make a new graph
there is no such register | `set_quota` names a register that the plan has not | a name that the message lists; `plan-viz show` shows them
disable_pass: got | there is no pass of this name | a name that the message lists
was donated to graph | `donate_inputs` gave the memory of this tensor to a step | `clone()` it before the call
too many positional arguments | the call has other arguments than `build()` | compare them with `build()`
must be a multiple of | a batch does not divide into micro-batches | another batch size, or another number of micro-batches
is not finished after | `set_wait_timeout` ran out | look at the actor that it names
the predicate is | `cond` needs one bool | `.any()` or `.all()` of the predicate
is not one graph | `compile(fullgraph=True)` of code that reads a value, prints, or reaches the host in another way | take that out, or leave out `fullgraph` ([compile.md](compile.md#breaks))
""",
    ("E3", "Host functions, data, ops of your own"): """
the data of a source has ended | a source has no more data; not an error of yours | catch `sl.EndOfData`; `graph.reset()` begins anew
raised KeyError | a host function raised | the function's traceback follows
declared was | a host function returned another shape or dtype than its `out=` | return what `out` says, or use `sl.Dim`
assignment destination is read-only | a host function writes to its argument | write to a copy: `a = a.copy()`
mixes rows of dim | rows that are not there would count | mask them: `sl.extent` and `sl.where` ([data.md](data.md#lengths-that-differ-from-step-to-step))
no fake impl registered | a custom op is used in a graph without a fake | `op.register_fake`, see [custom-ops.md](custom-ops.md)
no autograd formula was registered | a custom op has no gradient | `op.register_autograd`
stack expects each tensor to be equal size | samples of a batch have different shapes | pad them, or give the `DataLoader` a `collate_fn`
batch_size should be a positive integer | the batch size is 0 or negative | a positive number
has no numpy dtype | NumPy has no bfloat16 | `.float().numpy()`
an array of dtype | NumPy's array has a dtype that tensors have not | `array.astype(numpy.float32)`
the memory is read-only | the tensor shares memory with a read-only array | `clone()` it
nested sequences of unequal length | the rows of a list differ in length | pad them
tensor: got | the value is not made of numbers | numbers, nested lists of numbers, or an array
""",
    ("E4", "Shapes, dtypes, indices"): """
must equal b.shape[-2] | a matrix product of sizes that do not fit | transpose one of the operands
feature counts differ | a linear layer gets inputs of another width | compare `in_features` with `x.shape[-1]`
shapes do not broadcast | sizes differ and none of them is 1 | `unsqueeze` or `reshape` one operand
operands must have one dtype | float64 data (NumPy's default) in a float32 model | `x.float()`
operands must have 3 and 3 dims | `bmm` takes batches of matrices | `@`, or `unsqueeze(0)`
channels differ | the input of a convolution has another number of channels | compare `in_channels` with `x.shape[1]`; images are (N, C, H, W)
expected 3D (unbatched) or 4D (batched) input | the input of a convolution lacks an axis | `unsqueeze` it
is larger than the padded input | the image is smaller than the window | a larger image, or `padding=`
normalized_shape does not fit | `LayerNorm` is for another width | compare it with `x.shape[-1]`
asks for float32( | a norm layer is for another number of channels | compare `num_features` with `x.shape[1]`
training needs more than one | batch norm of a single value | a larger batch, or `eval()`
sizes differ: | `reshape` or `view` to another number of elements | let one size be -1
differ outside axis | `cat` of tensors that differ elsewhere | check the other sizes
use reshape | `view` cannot say this with strides | `reshape`, or `contiguous()` first
axis out of range | the tensor has fewer dims | `x.ndim`
is out of bounds for dimension | an index beyond the size | check the size
too many indices | more indices than dims | check `x.ndim`
slice step is | slices go forward only | `x.flip(dim)`
index is out of range | an index beyond an embedding's table | check the vocabulary size
index out of range: | an index beyond the axis, in `gather`, `scatter` or `index_select` | check the indices
index dtype is | indices are whole numbers | `.long()`
target is not a class | a label is negative or too large | check the labels and the number of outputs
target does not fit | labels and predictions are of different batches | compare their first sizes
must be the same as input size | a loss gets targets of another shape | `unsqueeze` or `squeeze` the target
condition: dtype is | a mask is bool | `x > 0`, or `mask.bool()`
dtype is int64; must be floating | a mean of whole numbers | `.float()`
can't be cast to the desired output type | a result does not fit into the tensor written to | write out of place, or to a float tensor
is ambiguous | a condition on several values | `.any()` or `.all()`
cannot be converted to Scalar | `item()` of several values | `tolist()`, or a reduction first
is singular | a matrix without an inverse | `linalg.pinv`, or add a small multiple of the identity
is not positive-definite | a matrix without a Cholesky factor | check that it is symmetric and positive
""",
    ("E5", "Gradients and training"): """
does not require grad | nothing in the result has `requires_grad` | `requires_grad_()` on what is trained
backward through the graph a second time | `backward()` frees what it needs | `retain_graph=True` the first time
modified by an inplace operation | a value that the gradient needs was overwritten | write out of place, or `clone()` first
grad can be implicitly created only for scalar outputs | `backward()` of several values | `.sum()` or `.mean()` first
appears to not have been used | the result does not depend on this tensor | `allow_unused=True`
only Tensors of floating point dtype can require gradients | whole numbers have no gradient | `.float()`
requires grad; use tensor.detach() | NumPy cannot record gradients | `x.detach().numpy()`
a leaf Variable that requires grad | a parameter is written in place | write inside `with torch.no_grad():`
can't optimize a non-leaf Tensor | an optimizer gets a result instead of a parameter | pass `module.parameters()`
optimizer got an empty parameter list | the module has no parameters, or a generator was used up | make the list anew
should be an iterable of Tensors or dicts | an optimizer gets one tensor | put it into a list
is not finite | `enable_check_numerics` found a NaN or an infinity | look at the op and line that it names
cannot assign module before Module.__init__() call | a module's `__init__` begins without it | call `super().__init__()` first
is missing the required "forward" function | the module has no method of that name | define `forward`
""",
    ("E6", "Memory"): """
over its memory budget | the plan needs more than `set_memory_budget` allows | the budget in the message, or a smaller batch
out of memory in host | the tensor does not fit | a smaller batch; free tensors
the limit that was set | `sl.memory.set_limit` allows less | free tensors, or raise the limit
""",
    ("E7", "Save and load"): """
not a directory; a bundle holds | the path is not a bundle | pass the directory that `torch.save(graph, path)` wrote
not a zip file | the file is no checkpoint | `load_graph` for a bundle; an old checkpoint: save it again with PyTorch
runs host function | the saved graph calls a Python function | `load_graph(path, functions={"name": fn})`
Missing key(s) in state_dict | the checkpoint is of another model | compare the keys; `strict=False` loads what fits
Unexpected key(s) in state_dict | the checkpoint has more than the model | the same
size mismatch for | a parameter has another shape | the same model as when it was saved
not on the allow-list | the file names a class or function, which `load` does not run | `add_safe_globals([Class])`, if you trust the file
""",
    ("E8", "Several devices and processes"): """
eager ops do not run on several devices | an eager operation on a global tensor | do it in `build()`, or on `x.to_local()`
operands lie on different placements | two global tensors of different devices | `to_global(placement=...)` of one
the ranks have not met | a collective before `init()` | call `sluice.distributed.init()` first
did not come | some ranks never called `init()` | look at the output of these ranks
is gone: its connection closed | a rank was killed or crashed | look at the first failure that the launcher names
does not answer | a rank is stopped, or cut off from the network | look at that rank
which is alive | a rank does not make the call that the others wait in | all ranks make the same calls in the same order
has left while | a rank ended before the others | all ranks make the same calls
takes no part | a rank failed in this call and goes on | look at that rank's error
""",
}


def _table() -> list[Trouble]:
    found = []
    for (prefix, section), lines in _SECTIONS.items():
        for n, line in enumerate(lines.strip().splitlines(), 1):
            text, because, do = line.split(" | ")
            found.append(Trouble(f"{prefix}{n:02}", text, because, do, section))
    return found


TABLE = _table()
_LONGEST_FIRST = sorted(TABLE, key=lambda trouble: -len(trouble.text))


def find(message: str) -> Optional[Trouble]:
    """The entry whose text the message contains; of several, what comes first in it, and then the longest."""
    there = [trouble for trouble in _LONGEST_FIRST if trouble.text in message]
    return min(there, key=lambda trouble: message.index(trouble.text), default=None)


def _plain(markdown: str) -> str:
    return re.sub(r"\[([^\]]*)\]\(([^)]*)\)", r"docs/\2", markdown).replace("`", "")


def explain(words: str) -> str:
    """What `words`, a code or the text of an error, means and what to do. Raises LookupError with the nearest texts."""
    wanted = words.strip()
    trouble = next((t for t in TABLE if t.code == wanted.upper()), None) or find(wanted)
    if trouble is None:
        lower = wanted.lower()
        trouble = next((t for t in _LONGEST_FIRST if t.text.lower() in lower or (len(lower) > 5 and lower in t.text.lower())), None)
    if trouble is None:
        import difflib

        near = difflib.get_close_matches(wanted, [t.text for t in TABLE], n=3, cutoff=0.3)
        raise LookupError(f"explain: nothing is known of {wanted!r:.200}; give a code such as E201, or a part of an error's text"
                          + (f". The nearest: {'; '.join(near)}" if near else ""))
    return (f"{trouble.code}  {trouble.section}\n  the error says  {trouble.text}\n  because         {_plain(trouble.because)}\n"
            f"  do this         {_plain(trouble.do)}\n")


def page() -> str:
    """The part of docs/troubleshooting.md that is a table."""
    lines = []
    for _, section in _SECTIONS:
        lines += [f"### {section}", "", "| code | the error says | because | do this |", "|---|---|---|---|"]
        lines += [f"| {t.code} | `{t.text}` | {t.because} | {t.do} |" for t in TABLE if t.section == section]
        lines += [""]
    return "\n".join(lines)


def note_on(errors: type) -> None:
    """Gives these exceptions `code`, and a line below their traceback that says how to have them explained."""

    def code(self: BaseException) -> Optional[str]:
        trouble = find(str(self))
        return None if trouble is None else trouble.code

    def notes(self: BaseException) -> list[str]:
        if "__notes__" not in self.__dict__:
            found = self.code  # type: ignore[attr-defined]
            self.__dict__["__notes__"] = [] if found is None else [f"  more: python -m sluice.info explain {found}"]
        return self.__dict__["__notes__"]

    errors.code = property(code, doc="The code of the error in docs/troubleshooting.md, or None.")  # type: ignore[attr-defined]
    errors.__notes__ = property(notes)  # type: ignore[attr-defined]


if __name__ == "__main__":
    print(page(), end="")
