// Elements at places that are known when a step runs.
#include <fmt/format.h>

#include "base/error.h"
#include "kernels/c/printer.h"

namespace sluice::c {
namespace {

// The index of gather and scatter has a place for each element, that of index_select and index_add one for each slice.
struct Lookup {
  int dim = 0;
  std::vector<std::string> there;  // the place that is looked up
  std::string index;               // where the index is
};

Lookup lookup_of(const plan::KernelQuery& query, bool slices) {
  const TensorSpec& index = query.inputs.at(1);
  const int rank = query.inputs[0].shape.rank();
  Lookup lookup{normalize_axis(get_attr<int64_t>(query.attrs, "dim"), rank, query.op.c_str()), {}, {}};
  for (int axis = 0; axis < rank; ++axis) lookup.there.push_back(fmt::format("i{}", axis));
  lookup.index = slices ? offset(index.strides, std::vector<std::string>{fmt::format("i{}", lookup.dim)})
                        : offset(index.strides, "i");
  lookup.there[static_cast<size_t>(lookup.dim)] = "p";
  return lookup;
}

// The place `p`, once it is known to be inside.
void find(Lines& lines, const plan::KernelQuery& query, const Lookup& lookup, int64_t size, Shared& shared) {
  lines.add(fmt::format("const i64 p = x1[{}];", lookup.index));
  const int error = shared.error(fmt::format("{}: an index is out of range; it must be in [0, {})", query.op, size));
  lines.add(fmt::format("if (p < 0 || p >= {}) return {};", size, error));
}

template <bool kSlices>
std::string print_take(const plan::KernelQuery& query, Shared& shared) {
  const TensorSpec &x = query.inputs.at(0), &y = query.outputs.at(0);
  const Lookup lookup = lookup_of(query, kSlices);
  Lines lines;
  lines.loops("i", y.shape);
  find(lines, query, lookup, x.shape[lookup.dim], shared);
  lines.add(fmt::format("y0[{}] = x0[{}];", offset(y.strides, "i"), offset(x.strides, lookup.there)));
  lines.close_all();
  return lines.text();
}

// The new value of an element `a` to which `v` comes.
std::string joined(const plan::KernelQuery& query, bool adds, Shared& shared) {
  if (query.op != "scatter_reduce") return adds ? "a + v" : "v";
  const std::string& reduce = get_attr<std::string>(query.attrs, "reduce");
  const ScalarOp* const op = find_scalar_op(reduce == "prod" ? "mul" : reduce == "amax" ? "maximum" : "minimum");
  return shared.scalar(*op, query.outputs.at(0).dtype) + "(a, v)";
}

template <bool kSlices, bool kAdds>
std::string print_put(const plan::KernelQuery& query, Shared& shared) {
  const TensorSpec &x = query.inputs.at(0), &src = query.inputs.at(2), &y = query.outputs.at(0);
  const Lookup lookup = lookup_of(query, kSlices);
  Lines lines;
  lines.loops("i", x.shape);
  lines.add(fmt::format("y0[{}] = x0[{}];", offset(y.strides, "i"), offset(x.strides, "i")));
  lines.close_all();
  lines.loops("i", src.shape);
  find(lines, query, lookup, x.shape[lookup.dim], shared);
  const std::string there = offset(y.strides, lookup.there), next = joined(query, kAdds, shared);
  const char* const type = compute_type(y.dtype);
  if (next != "v") lines.add(fmt::format("const {} a = y0[{}];", type, there));
  lines.add(fmt::format("const {} v = x2[{}];", type, offset(src.strides, "i")));
  lines.add(fmt::format("y0[{}] = ({})({});", there, memory_type(y.dtype), next));
  lines.close_all();
  return lines.text();
}

}  // namespace

void add_indexing(Printers& printers) {
  printers["gather"] = {.print = print_take<false>};
  printers["index_select"] = {.print = print_take<true>};
  printers["scatter"] = {.print = print_put<false, false>};
  printers["scatter_add"] = {.print = print_put<false, true>};
  printers["scatter_reduce"] = {.print = print_put<false, true>};
  printers["index_add"] = {.print = print_put<true, true>};
}

}  // namespace sluice::c
