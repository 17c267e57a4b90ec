// Any op of the registry with any input types and attribute values: types come out, or an error that starts with the
// op's name. Inferred types are also costed, viewed and placed.
#include <memory>

#include "fuzz_targets/bytes.h"
#include "fuzz_targets/targets.h"
#include "graph/op_def.h"

namespace sluice::fuzz {
namespace {

Attr any_attr(Bytes& bytes, const Param& param) {
  const size_t wanted = param.default_value.index();
  // Mostly of the type the op wants, so that its own rules are reached.
  switch (bytes.below(8) == 7 ? static_cast<size_t>(bytes.below(7)) : wanted) {
    case 0: return bytes.flag() ? Attr(bytes.integer()) : Attr(NoAttr{});
    case 1: return bytes.flag();
    case 2: return bytes.integer();
    case 3: return bytes.real();
    case 4: {
      constexpr const char* kWords[] = {"none", "mean", "sum", "relu", "gelu", "tanh", "sigmoid", "max", "", "\xff\n"};
      return std::string(kWords[bytes.below(std::size(kWords))]);
    }
    case 5: {
      Ints ints;
      for (int n = bytes.below(10); n > 0; --n) ints.push_back(bytes.integer());
      return ints;
    }
    case 6: return bytes.dtype();
    case 9: {
      Strings strings;
      for (int n = bytes.below(4); n > 0; --n) strings.push_back(bytes.flag() ? "sim:0" : "cpu:1");
      return strings;
    }
    case 12: {
      TensorTypes types;
      for (int n = bytes.below(4); n > 0; --n) types.push_back({bytes.dtype(), bytes.shape()});
      return types;
    }
    case 13: {
      AttrGraph graph{bytes.below(4), {}, {}};
      for (int n = bytes.below(5); n > 0; --n) {
        constexpr const char* kOps[] = {"mul", "exp", "where", "cast", "gelu", "reshape", "nothing", ""};
        AttrCall& call = graph.calls.emplace_back(AttrCall{kOps[bytes.below(std::size(kOps))], {}, {}});
        if (bytes.flag()) call.attrs = {{"approximate", std::string("tanh")}};
        for (int k = bytes.below(4); k > 0; --k) call.operands.push_back(bytes.below(8) - 1);
      }
      for (int n = bytes.below(3); n > 0; --n) graph.outputs.push_back(bytes.below(8) - 1);
      return graph;
    }
    default: return param.default_value;
  }
}

std::vector<TensorType> inputs_of(Bytes& bytes, const OpDef& op, std::unique_ptr<bool[]>& present) {
  const int given = op.variadic() ? bytes.below(5) : static_cast<int>(op.inputs.size());
  std::vector<TensorType> types(given);
  present = std::make_unique<bool[]>(given);
  for (int i = 0; i < given; ++i) {
    present[i] = bytes.below(8) != 7;
    // The shape and dtype of the first, often: most ops want them alike.
    if (i > 0 && bytes.flag()) {
      types[i] = types[0];
      continue;
    }
    if (present[i]) types[i] = {bytes.dtype(), bytes.shape()};
  }
  return types;
}

}  // namespace

int op_infer(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const std::vector<const OpDef*> ops = builtin_ops().all();
  const OpDef& op = *ops[bytes.below(static_cast<int>(ops.size()))];
  std::unique_ptr<bool[]> present;
  const std::vector<TensorType> types = inputs_of(bytes, op, present);
  Attrs given;
  for (const Param& param : op.params) given.push_back(any_attr(bytes, param));
  try {
    for (size_t i = 0; i < types.size(); ++i) {
      if (present[i]) numel(types[i].shape);  // as Graph::add_input does: no such value exists
    }
  } catch (const Error&) {
    return 0;
  }
  std::vector<TensorType> out;
  Attrs attrs;
  try {
    check_input_count(op, types.size());
    attrs = validate_attrs(op, given);
    out = infer_types(op, types, {present.get(), types.size()}, attrs);
    for (const TensorType& type : out) numel(type.shape);
  } catch (const Error& error) {
    const std::string_view text = error.what();
    expect(text.starts_with(std::string(op.name) + ":") || text.starts_with("shape: "),
           "op_infer: the error does not start with the op", std::string(op.name) + ": " + std::string(text));
    return 0;
  }
  const Cost cost = cost_of(op, types, out, attrs);
  expect(cost.flops >= 0 && cost.bytes >= 0, "op_infer: a cost below zero", op.name);
  if (op.sbp) op.sbp(types, attrs);
  if (op.view && !types.empty()) {
    const TensorSpec in = TensorSpec::contiguous(types[0]);
    const std::optional<OpDef::ViewSpec> view = op.view(in, attrs);
    if (view && numel(view->shape) > 0) {
      const TensorSpec spec{out[0].dtype, view->shape, view->strides};
      expect(view->shape == out[0].shape, "op_infer: a view of another shape", op.name);
      int64_t low = view->offset, high = view->offset;
      for (int i = 0; i < spec.shape.rank(); ++i) {
        (spec.strides[i] < 0 ? low : high) += (spec.shape[i] - 1) * spec.strides[i];
      }
      // In elements of the input, which may have another size.
      const auto from = static_cast<int64_t>(dtype_size(in.dtype)), to = static_cast<int64_t>(dtype_size(spec.dtype));
      const bool inside = from < to ? high < numel(in.shape) / (to / from) : high / (from / to) < numel(in.shape);
      expect(low >= 0 && inside, "op_infer: a view that leaves its input", op.name);
    }
  }
  return 0;
}

}  // namespace sluice::fuzz
