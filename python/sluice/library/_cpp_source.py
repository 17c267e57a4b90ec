"""The C++ text of a kernel that is given as a body: an op of include/sluice/extension.h, for one dtype of each tensor."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from sluice import _C

# The types of elements that a body computes with. The processor has none of bfloat16.
TYPES = {_C.bool: "bool", _C.uint8: "uint8_t", _C.int8: "int8_t", _C.int16: "int16_t", _C.int32: "int32_t", _C.int64: "int64_t",
         _C.float32: "float", _C.float64: "double", _C.complex64: "std::complex<float>", _C.complex128: "std::complex<double>"}
_ENUMS = {_C.bool: "kBool", _C.uint8: "kUInt8", _C.int8: "kInt8", _C.int16: "kInt16", _C.int32: "kInt32", _C.int64: "kInt64",
          _C.float32: "kFloat32", _C.float64: "kFloat64", _C.complex64: "kComplex64", _C.complex128: "kComplex128"}
_NUMBERS = {bool: "bool", int: "int64_t", float: "double"}
# These names are C++'s own, or those of the text around a body.
RESERVED = set("""alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl concept
    const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast else
    enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or
    or_eq private protected public register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct
    switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
    xor_eq call inputs outputs numbers sluice std run main""".split())


class Texts(NamedTuple):
    """A kernel as its author gives it."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: dict[str, Any]  # with their defaults, which decide the types
    source: str
    header: str


def _operand(name: str, dtype: Any, place: str, of: str, const: str) -> str:
    """A tensor as a body has it: elements, their type, and the shape."""
    return f"""    using {name}_t [[maybe_unused]] = {TYPES[dtype]};
    [[maybe_unused]] {const}{name}_t* const {name} = static_cast<{const}{name}_t*>(call.{place});
    [[maybe_unused]] const std::vector<int64_t>& {name}_shape = {of}.shape;
    [[maybe_unused]] const int64_t {name}_ndim = static_cast<int64_t>({of}.shape.size()), {name}_size = number_of({of});
"""


def _literal(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"int64_t{{{value}}}" if isinstance(value, int) else repr(value)


def generated(texts: Texts, given: list[Any], made: list[Any]) -> tuple[str, str]:
    """The name of the op for tensors of these dtypes, and its source. The name has a hash of all that the source depends on."""
    operands = "".join([*(_operand(n, d, f"inputs[{i}]", f"inputs_[{i}]", "const ") for i, (n, d) in enumerate(zip(texts.inputs, given))),
                        *(_operand(n, d, f"outputs[{i}]", f"outputs_[{i}]", "") for i, (n, d) in enumerate(zip(texts.outputs, made)))])
    numbers = "".join(f"    [[maybe_unused]] const {_NUMBERS[type(v)]} {n} = numbers_.get<{_NUMBERS[type(v)]}>(\"{n}\");\n"
                      for n, v in texts.parameters.items())
    checks = "".join(f"    if (in[{i}].dtype != DType::{_ENUMS[d]}) throw Error(ErrorKind::kType, \"{n} must be {d.name}\");\n"
                     for i, (n, d) in enumerate(zip(texts.inputs, given)))
    results = ", ".join(f'{{DType::{_ENUMS[d]}, numbers.get<std::vector<int64_t>>("{n}_shape")}}' for n, d in zip(texts.outputs, made))
    declared = ", ".join([*(f'{{"{n}_shape", std::vector<int64_t>{{}}, true}}' for n in texts.outputs),
                          *(f'{{"{n}", {_literal(v)}}}' for n, v in texts.parameters.items())])
    names = ", ".join(f'"{n}"' for n in texts.inputs)
    body = f"""{operands}{numbers}#line 1 "{texts.name}"
{texts.source}
"""
    digest = hashlib.sha256("\0".join([texts.name, texts.header, checks, results, declared, names, body]).encode()).hexdigest()[:16]
    op = f"{texts.name}_{digest}"
    return op, f"""#include "include/sluice/extension.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <stdexcept>

#line 1 "header of {texts.name}"
{texts.header}

namespace {{
using namespace sluice::api;

int64_t number_of(const OperandSpec& spec) {{
  int64_t number = 1;
  for (const int64_t dim : spec.shape) number *= dim;
  return number;
}}

class Body final : public Kernel {{
 public:
  explicit Body(const KernelRequest& request)
      : inputs_(request.inputs), outputs_(request.outputs), numbers_(request.attributes) {{}}
  void run(const KernelCall& call) const override {{
{body}  }}

 private:
  std::vector<OperandSpec> inputs_, outputs_;
  Attributes numbers_;
}};

struct Bodies final : KernelFactory {{
  std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {{ return std::make_unique<Body>(request); }}
}};

struct OfText final : Op {{
  std::string name() const override {{ return "{op}"; }}
  std::string doc() const override {{ return "A kernel of C++ text, {texts.name}."; }}
  std::vector<std::string> inputs() const override {{ return {{{names}}}; }}
  std::vector<Parameter> parameters() const override {{ return {{{declared}}}; }}
  int num_outputs() const override {{ return {len(texts.outputs)}; }}
  std::vector<OperandType> infer([[maybe_unused]] const std::vector<OperandType>& in, const Attributes& numbers) const override {{
{checks}    return {{{results}}};
  }}
  std::shared_ptr<const KernelFactory> kernel() const override {{ return std::make_shared<Bodies>(); }}
}};
}}  // namespace

SLUICE_EXTENSION(extension) {{
  extension.describe("{op}", "1");
  extension.add_op(std::make_shared<OfText>());
}}
"""
