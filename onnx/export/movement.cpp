// Entries of ops that move elements, reduce them, and look them up.
#include "graph/ops/movement.h"

#include <limits>
#include <numeric>

#include "base/error.h"
#include "onnx/export/emission.h"

namespace sluice::onnx::exporting {
namespace {

using Names = std::vector<std::string>;

Number fixed(const Emission& e, int64_t value) { return Number(e.to.traces(), value); }
std::string one_int(const Emission& e, int64_t value) { return e.to.ints({fixed(e, value)}); }
std::string ints(const Emission& e, const Ints& values) {
  Numbers numbers;
  for (const int64_t v : values) numbers.push_back(fixed(e, v));
  return e.to.ints(numbers);
}
bool all_fixed(const Numbers& numbers) { return std::all_of(numbers.begin(), numbers.end(), is_fixed); }

// One dim that varies follows from the others.
std::string reshaped(const Emission& e, const std::string& x, Numbers shape) {
  const auto varies = std::count_if(shape.begin(), shape.end(), [](const Number& n) { return !is_fixed(n); });
  const bool empty = std::any_of(shape.begin(), shape.end(), [](const Number& n) { return n.front() == 0; });
  if (varies == 1 && !empty)
    for (Number& n : shape)
      if (!is_fixed(n)) n = fixed(e, -1);
  if (!empty) return e.to.add1("Reshape", {x, e.to.ints(shape)});
  return e.to.add1("Reshape", {x, e.to.ints(shape)}, {{"allowzero", int64_t{1}}});
}

Names full(const Emission& e) {
  const Numbers shape = e.shape_out();
  const std::string value = e.to.scalar(e.f("value"), e.result().dtype);
  if (shape.empty()) return {value};
  return {e.to.add1("Expand", {value, e.to.ints(shape)})};
}

Names iota(const Emission& e) {
  const DType dtype = e.result().dtype;
  const DType wide = is_floating(dtype) ? (dtype == DType::kFloat64 ? dtype : DType::kFloat32) : DType::kInt64;
  const Numbers n = e.shape_out();
  const std::string zero = e.to.scalar(0, DType::kInt64), one = e.to.scalar(1, DType::kInt64);
  std::string y = e.to.add1("Range", {zero, e.to.add1("Reshape", {e.to.ints(n), ints(e, {})}), one});
  if (wide != DType::kInt64) y = e.to.cast(y, wide);
  if (e.f("step") != 1) y = e.to.add1("Mul", {y, e.to.scalar(e.f("step"), wide)});
  if (e.f("start") != 0) y = e.to.add1("Add", {y, e.to.scalar(e.f("start"), wide)});
  return {wide == dtype ? y : e.to.cast(y, dtype)};
}

Names slice(const Emission& e) {
  const Numbers starts = e.numbers("starts"), stops = e.numbers("stops"), steps = e.numbers("steps"),
                size = e.shape_in(0);
  Numbers first, last, step;
  Ints axes;
  for (size_t d = 0; d < starts.size(); ++d) {
    const Number none = fixed(e, 0), unit = fixed(e, 1);
    if (starts[d] == none && stops[d] == size[d] && steps[d] == unit) continue;
    axes.push_back(static_cast<int64_t>(d));
    first.push_back(starts[d]);
    last.push_back(stops[d] == size[d] ? fixed(e, std::numeric_limits<int64_t>::max()) : stops[d]);
    step.push_back(steps[d]);
  }
  if (axes.empty()) return {e.to.add1("Identity", e.inputs)};
  return {e.to.add1("Slice", {e.inputs[0], e.to.ints(first), e.to.ints(last), ints(e, axes), e.to.ints(step)})};
}

// An axis with `interior` elements put between neighbours: they are stacked behind each, and what is behind the last is
// cut.
std::string spread(const Emission& e, const std::string& x, const Numbers& shape, size_t axis, int64_t between) {
  Numbers apart = shape, joined = shape;
  apart.insert(apart.begin() + static_cast<int64_t>(axis) + 1, fixed(e, 1));
  Ints pads(2 * apart.size(), 0);
  pads[apart.size() + axis + 1] = between;
  std::string y = e.to.add1("Pad", {reshaped(e, x, apart), ints(e, pads), e.to.scalar(e.f("value"), e.result().dtype)});
  for (int64_t& n : joined[axis]) n *= between + 1;
  y = reshaped(e, y, joined);
  return e.to.add1("Slice", {y, one_int(e, 0), one_int(e, -between), one_int(e, static_cast<int64_t>(axis))});
}

Names pad(const Emission& e) {
  const Ints interior = e.is("interior");
  Numbers low = e.numbers("low"), high = e.numbers("high"), shape = e.shape_in(0);
  std::string x = e.inputs[0];
  for (size_t d = 0; d < interior.size(); ++d) {
    if (interior[d] == 0 || shape[d].front() < 2) continue;
    x = spread(e, x, shape, d, interior[d]);
    for (int64_t& n : shape[d]) n += (n - 1) * interior[d];
  }
  low.insert(low.end(), high.begin(), high.end());
  const DType dtype = e.result().dtype;
  if (dtype == DType::kBool) {
    x = e.to.add1("Pad", {e.to.cast(x, DType::kInt32), e.to.ints(low), e.to.scalar(e.f("value"), DType::kInt32)});
    return {e.to.cast(x, dtype)};
  }
  return {e.to.add1("Pad", {x, e.to.ints(low), e.to.scalar(e.f("value"), dtype)})};
}

Names flip(const Emission& e) {
  const Ints dims = e.is("dims");
  if (dims.empty()) return {e.to.add1("Identity", e.inputs)};
  const size_t n = dims.size();
  return {
      e.to.add1("Slice", {e.inputs[0], ints(e, Ints(n, -1)), ints(e, Ints(n, std::numeric_limits<int64_t>::min() + 1)),
                          ints(e, dims), ints(e, Ints(n, -1))})};
}

// The elements of the flat input that a view shows.
Names strided_view(const Emission& e) {
  const Numbers shape = e.shape_out(), from = e.shape_in(0);
  if (!all_fixed(shape) || !all_fixed(from)) e.refuse("a view of windows, whose sizes vary with a dim");
  const Ints starts = e.is("starts"), steps = e.is("steps");
  const Strides strides = contiguous_strides(e.type().shape);
  const int rank = e.rank();
  int64_t offset = 0;
  for (int k = 0; k < rank; ++k) offset += starts[static_cast<size_t>(k)] * strides[k];
  std::vector<int64_t> at{offset};
  const Shape& to = e.result().shape;
  for (int j = 0; j < to.rank(); ++j) {
    int64_t stride = 0;
    for (int k = 0; k < rank; ++k) stride += steps[static_cast<size_t>(j * rank + k)] * strides[k];
    std::vector<int64_t> more;
    for (const int64_t a : at)
      for (int64_t i = 0; i < to[j]; ++i) more.push_back(a + i * stride);
    at = std::move(more);
  }
  const std::string index = e.to.constant(Tensor::from_host({DType::kInt64, to}, at.data()));
  return {e.to.add1("Gather", {e.to.add1("Reshape", {e.inputs[0], one_int(e, -1)}), index}, {{"axis", int64_t{0}}})};
}

// Reductions, of a dtype that ONNX reduces.
Emit reduced(const char* op) {
  return [=](const Emission& e) -> Names {
    const DType from = e.type().dtype, to = e.result().dtype;
    const bool adds = std::string_view(op) == "ReduceSum" || std::string_view(op) == "ReduceProd";
    const bool counts = from == DType::kBool && to == DType::kBool;
    const DType compute = counts ? DType::kInt32 : adds || from == DType::kBool ? to : from;
    const std::string x = compute == from ? e.inputs[0] : e.to.cast(e.inputs[0], compute);
    Ints axes;
    if (!attr_is_none(*e.attrs.front(), e.op.find_param("dim"))) axes = e.is("dim");
    const int64_t keep = e.b("keepdim") ? 1 : 0;
    const bool sum = std::string_view(op) == "ReduceSum";
    if (axes.empty() && e.rank() > 0) {
      axes.resize(static_cast<size_t>(e.rank()));
      std::iota(axes.begin(), axes.end(), 0);
    }
    std::string y;
    if (e.rank() == 0)
      y = std::string_view(op) == "ReduceSumSquare" ? e.to.add1("Mul", {x, x}) : e.to.add1("Identity", {x});
    else if (sum || e.to.opset() >= 18)
      y = e.to.add1(op, {x, ints(e, axes)}, {{"keepdims", keep}});
    else
      y = e.to.add1(op, {x}, {{"axes", axes}, {"keepdims", keep}});
    return {to == compute ? y : e.to.cast(y, to)};
  };
}

// The call with an operand of bools, `none`: each the contrary.
Emission of_bools(const Emission& e, bool none) {
  Emission made = e;
  std::string& x = made.inputs[0];
  if (e.type().dtype != DType::kBool) x = e.to.cast(x, DType::kBool);
  if (none) x = e.to.add1("Not", {x});
  for (std::vector<TensorType>& types : made.in) types[0].dtype = DType::kBool;
  return made;
}
// By their number, which is 0 where there are none.
Names any_true(const Emission& e) { return reduced("ReduceSum")(of_bools(e, false)); }
Names all_true(const Emission& e) { return {e.to.add1("Not", reduced("ReduceSum")(of_bools(e, true)))}; }

Emit extreme_index(const char* op) {
  return [=](const Emission& e) -> Names {
    const bool all = attr_is_none(*e.attrs.front(), e.op.find_param("dim"));
    const std::string x = all ? e.to.add1("Reshape", {e.inputs[0], one_int(e, -1)}) : e.inputs[0];
    if (e.rank() == 0)
      return {
          e.to.add1("Reshape", {e.to.add1(op, {x}, {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}}), ints(e, {})})};
    const std::string y = e.to.add1(
        op, {x},
        {{"axis", all ? int64_t{0} : e.i("dim")}, {"keepdims", e.b("keepdim") && !all ? int64_t{1} : int64_t{0}}});
    return {all && e.b("keepdim") ? reshaped(e, y, e.shape_out()) : y};
  };
}

Names sorted(const Emission& e) {
  if (e.rank() == 0) e.refuse("an order of no axis");
  const int axis = normalize_axis(e.i("dim"), e.rank(), "dim");
  const Number first = e.numbers("first")[0], none = fixed(e, 0);
  Number k = e.shape_out()[static_cast<size_t>(axis)];
  for (size_t t = 0; t < k.size(); ++t) k[t] += first[t];
  const Exporter::Attributes attributes{
      {"axis", int64_t{axis}}, {"largest", e.b("descending") ? int64_t{1} : int64_t{0}}, {"sorted", int64_t{1}}};
  const std::string at = e.to.add("TopK", {e.inputs[0], e.to.ints({k})}, attributes, 2)[1];
  if (first == none) return {at};
  return {e.to.add1("Slice", {at, e.to.ints({first}), e.to.ints({k}), one_int(e, axis)})};
}

// ScatterElements; what accumulates is of newer opsets.
Emit scattered(const char* reduction) {
  return [=](const Emission& e) -> Names {
    Exporter::Attributes attributes{{"axis", e.i("dim")}};
    std::string how = reduction;
    if (how == "by attribute") {
      how = e.s("reduce") == "prod" ? "mul" : e.s("reduce") == "amax" ? "max" : "min";
      e.to.need(18);
    }
    if (how != "none") attributes.emplace_back("reduction", how);
    return {e.to.add1("ScatterElements", e.inputs, attributes)};
  };
}

Names index_add(const Emission& e) {
  Numbers index = e.shape_in(2);
  const auto axis = static_cast<size_t>(normalize_axis(e.i("dim"), e.rank(), "dim"));
  const bool nothing = std::any_of(index.begin(), index.end(), [](const Number& n) { return n.front() == 0; });
  if (nothing) return {e.to.add1("Identity", {e.inputs[0]})};
  Numbers along(index.size(), fixed(e, 1));
  along[axis] = index[axis];
  const std::string at = e.to.add1("Expand", {reshaped(e, e.inputs[1], along), e.to.ints(index)});
  return {e.to.add1("ScatterElements", {e.inputs[0], at, e.inputs[2]},
                    {{"axis", e.i("dim")}, {"reduction", std::string("add")}})};
}

}  // namespace

void add_movement_emits(Emits& all) {
  all["full"] = full;
  all["iota"] = iota;
  all["slice"] = slice;
  all["pad"] = pad;
  all["flip"] = flip;
  all["strided_view"] = strided_view;
  all["reshape"] = [](const Emission& e) -> Names { return {reshaped(e, e.inputs[0], e.shape_out())}; };
  all["permute"] = [](const Emission& e) -> Names {
    Ints dims = e.is("dims");
    for (int64_t& d : dims) d = normalize_axis(d, e.rank(), "dims");
    return {e.to.add1("Transpose", e.inputs, {{"perm", dims}})};
  };
  all["expand"] = [](const Emission& e) -> Names {
    return {e.to.add1("Expand", {e.inputs[0], e.to.ints(e.shape_out())})};
  };
  all["concat"] = [](const Emission& e) -> Names { return {e.to.add1("Concat", e.inputs, {{"axis", e.i("dim")}})}; };
  all["gather"] = [](const Emission& e) -> Names {
    return {e.to.add1("GatherElements", e.inputs, {{"axis", e.i("dim")}})};
  };
  all["index_select"] = [](const Emission& e) -> Names {
    return {e.to.add1("Gather", e.inputs, {{"axis", e.i("dim")}})};
  };
  all["embedding"] = [](const Emission& e) -> Names { return {e.to.add1("Gather", e.inputs, {{"axis", int64_t{0}}})}; };
  all["scatter"] = scattered("none");
  all["scatter_add"] = scattered("add");
  all["scatter_reduce"] = scattered("by attribute");
  all["index_add"] = index_add;
  all["sum"] = reduced("ReduceSum");
  all["mean"] = reduced("ReduceMean");
  all["prod"] = reduced("ReduceProd");
  all["amax"] = reduced("ReduceMax");
  all["amin"] = reduced("ReduceMin");
  all["sum_of_squares"] = reduced("ReduceSumSquare");
  all["any"] = any_true;
  all["all"] = all_true;
  all["argmax"] = extreme_index("ArgMax");
  all["argmin"] = extreme_index("ArgMin");
  all["cumsum"] = [](const Emission& e) -> Names {
    const std::string x = e.type().dtype == e.result().dtype ? e.inputs[0] : e.to.cast(e.inputs[0], e.result().dtype);
    if (e.rank() == 0) return {e.to.add1("Identity", {x})};
    return {e.to.add1("CumSum", {x, e.to.scalar(static_cast<double>(e.i("dim")), DType::kInt64)})};
  };
  all["argsort"] = sorted;
}

}  // namespace sluice::onnx::exporting
