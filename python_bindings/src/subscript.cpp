#include "subscript.h"

#include "both.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "tensor/tensor.h"

namespace sluice::python {
namespace {

// The view that the ints, slices, None and Ellipsis select, and the index tensors left for its dims.
struct Parsed {
  Value view;
  std::vector<std::pair<int, Value>> tensors;  // by dim of the view, ascending
  bool adjacent = true;
};

Value index_tensor(nb::handle item) {
  nb::detail::make_caster<Value> caster;
  if (caster.from_python(item, 0, nullptr)) return caster.value;
  if (PyList_Check(item.ptr()) || nb::hasattr(item, "__array__"))
    return nb::cast<Tensor>(nb::module_::import_("sluice").attr("as_tensor")(item));
  fail(ErrorKind::kType, "index: got {}; must be ints, slices, None, ..., or tensors of integers or bool",
       Py_TYPE(item.ptr())->tp_name);
}

std::vector<nb::object> items_of(nb::handle index) {
  std::vector<nb::object> items;
  if (PyTuple_Check(index.ptr()))
    for (nb::handle item : nb::borrow<nb::tuple>(index)) items.push_back(nb::borrow(item));
  else
    items.push_back(nb::borrow(index));
  return items;
}

// Arrays have __index__ as well, which works for one element only: the others are index tensors.
bool is_int(nb::handle item) {
  if (PyLong_CheckExact(item.ptr())) return true;
  if (!PyIndex_Check(item.ptr()) || PyBool_Check(item.ptr()) || nb::isinstance<Tensor>(item)) return false;
  if (!nb::hasattr(item, "__array__")) return true;
  const nb::object number = nb::steal(PyNumber_Index(item.ptr()));
  if (!number.is_valid()) PyErr_Clear();
  return number.is_valid();
}

// Dims of x that an item uses up.
int dims_used(nb::handle item) {
  if (item.is_none() || item.ptr() == Py_Ellipsis || PyBool_Check(item.ptr())) return 0;
  if (is_int(item) || PySlice_Check(item.ptr())) return 1;
  const Value t = index_tensor(item);
  return t.dtype() == DType::kBool ? t.rank() : 1;
}

Value slice_of(const Value& x, int dim, nb::handle item) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(item.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
  if (step <= 0) fail(ErrorKind::kValue, "index: slice step is {}; must be positive", step);
  PySlice_AdjustIndices(x.shape()[dim], &start, &stop, step);
  if (start == 0 && stop == x.shape()[dim] && step == 1) return x;
  return ops::slice_axis(x, dim, start, std::max(start, stop), step);
}

// Positions where a mask is true, one int64 index per dim of the mask. The host must see the mask: not while tracing.
std::vector<Value> mask_indices(const Value& mask) {
  const Tensor t = Tensor(mask).contiguous();
  const bool* data = static_cast<const bool*>(t.read("index: a bool mask"));
  const Shape& shape = mask.shape();
  std::vector<Ints> found(shape.rank());
  for (int64_t i = 0, n = t.size(); i < n; ++i) {
    if (!data[i]) continue;
    for (int64_t d = shape.rank() - 1, rest = i; d >= 0; rest /= shape[d], --d) found[d].push_back(rest % shape[d]);
  }
  std::vector<Value> indices;
  for (const Ints& f : found)
    indices.push_back(Tensor::from_host({DType::kInt64, {static_cast<int64_t>(f.size())}}, f.data()));
  return indices;
}

Parsed parse(const Value& x, nb::handle index) {
  Parsed parsed;
  const std::vector<nb::object> items = items_of(index);
  int used = 0, ellipses = 0;
  for (const nb::object& item : items) {
    used += dims_used(item);
    ellipses += item.ptr() == Py_Ellipsis;
  }
  if (ellipses > 1) fail(ErrorKind::kIndex, "index: got {} ellipses; at most one is allowed", ellipses);
  if (used > x.rank())
    fail(ErrorKind::kIndex, "index: too many indices: got {} for a tensor of shape {}", used, x.shape().str());
  parsed.view = x;
  int dim = 0;
  for (const nb::object& item : items) {
    if (item.ptr() == Py_Ellipsis) {
      dim += x.rank() - used;
    } else if (item.is_none()) {
      parsed.view = ops::unsqueeze(parsed.view, dim++);
    } else if (is_int(item)) {
      const int64_t i = PyNumber_AsSsize_t(item.ptr(), nullptr), n = parsed.view.shape()[dim];
      if (PyErr_Occurred() != nullptr) nb::raise_python_error();
      if (i < -n || i >= n)
        fail(ErrorKind::kIndex,
             "subscript: index {} is out of bounds for dimension {} with size {}; must be at least {} and below {}", i,
             dim, n, -n, n);
      parsed.view = ops::select(parsed.view, dim, i < 0 ? i + n : i);
    } else if (PySlice_Check(item.ptr())) {
      parsed.view = slice_of(parsed.view, dim, item);
      ++dim;
    } else if (PyBool_Check(item.ptr())) {
      fail(ErrorKind::kUnsupported, "index: a Python bool is not supported; use a bool tensor");
    } else {
      const Value t = index_tensor(item);
      const bool mask = t.dtype() == DType::kBool;
      if (mask) {
        for (int i = 0; i < t.rank(); ++i)
          if (t.shape()[i] != parsed.view.shape()[dim + i])
            fail(ErrorKind::kIndex, "index: mask of shape {} does not match the tensor of shape {}", t.shape().str(),
                 x.shape().str());
      } else if (t.dtype() != DType::kInt64 && t.dtype() != DType::kInt32 && t.dtype() != DType::kUInt8) {
        fail(ErrorKind::kIndex, "index: got a tensor of {}; must be int64, int32 or bool", dtype_name(t.dtype()));
      }
      for (const Value& i : mask ? mask_indices(t) : std::vector<Value>{t}) {
        if (!parsed.tensors.empty() && parsed.tensors.back().first != dim - 1) parsed.adjacent = false;
        parsed.tensors.emplace_back(dim++, i);
      }
    }
  }
  return parsed;
}

// The indexed dims moved together, with one flat index into them: x[..., idx, idx, ...] as gather along one dim.
struct Flat {
  Value base;         // the view with indexed dims first and merged: (n, rest...)
  Value index;        // int64, flat
  Shape index_shape;  // of the broadcast index tensors
  Shape rest;         // dims not indexed
  int at = 0;         // where the index dims go among `rest` in the result
};

Flat flatten_index(const Parsed& parsed) {
  Flat flat;
  const Shape& shape = parsed.view.shape();
  std::vector<int> indexed;
  for (const auto& [dim, t] : parsed.tensors) {
    indexed.push_back(dim);
    flat.index_shape = broadcast_shapes(flat.index_shape, t.shape(), "index");
  }
  Ints order(indexed.begin(), indexed.end());
  int64_t merged = 1;
  for (int d : indexed) merged *= shape[d];
  for (int d = 0; d < shape.rank(); ++d)
    if (std::find(indexed.begin(), indexed.end(), d) == indexed.end()) {
      order.push_back(d);
      flat.rest.push_back(shape[d]);
    }
  flat.at = parsed.adjacent ? indexed.front() : 0;
  Ints base_shape{merged};
  for (int64_t d : flat.rest) base_shape.push_back(d);
  flat.base = ops::reshape(ops::permute(parsed.view, order), base_shape);
  for (const auto& [dim, t] : parsed.tensors) {
    Value i = ops::cast(t, DType::kInt64);
    const int64_t n = shape[dim];
    i = ops::where(ops::lt(i, int64_t{0}), ops::add(i, n), i);  // negative indices count from the end
    flat.index = flat.index ? ops::add(ops::mul(flat.index, n), i) : i;
  }
  flat.index = ops::reshape(ops::expand(flat.index, flat.index_shape), {numel(flat.index_shape)});
  return flat;
}

// (index dims..., rest...) <-> rest[:at] + index dims + rest[at:].
Ints result_order(const Flat& flat, bool to_result) {
  const int k = flat.index_shape.rank(), r = flat.rest.rank();
  Ints order;
  if (to_result) {
    for (int i = 0; i < flat.at; ++i) order.push_back(k + i);
    for (int i = 0; i < k; ++i) order.push_back(i);
    for (int i = flat.at; i < r; ++i) order.push_back(k + i);
  } else {
    for (int i = 0; i < k; ++i) order.push_back(flat.at + i);
    for (int i = 0; i < r; ++i) order.push_back(i < flat.at ? i : k + i);
  }
  return order;
}

Value gather_flat(const Flat& flat) {
  Ints shape = flat.index_shape.vec();
  for (int64_t d : flat.rest) shape.push_back(d);
  const Value rows = ops::reshape(ops::index_select(flat.base, flat.index, 0), shape);
  return ops::permute(rows, result_order(flat, true));
}

Value value_to_set(nb::handle value, const Value& x) {
  std::optional<ops::Operand> operand;
  if (operand_from(value, &operand)) return operand->is_number() ? operand->to(x.dtype()) : operand->value();
  return nb::cast<Tensor>(nb::module_::import_("sluice").attr("as_tensor")(value));
}

// x with the indexed elements replaced: a scatter of whole rows into the merged view.
Value with_rows(const Flat& flat, const Parsed& parsed, const Value& value) {
  Shape result;
  for (int i = 0; i < flat.at; ++i) result.push_back(flat.rest[i]);
  for (int64_t d : flat.index_shape) result.push_back(d);
  for (int i = flat.at; i < flat.rest.rank(); ++i) result.push_back(flat.rest[i]);
  Value rows = ops::permute(ops::expand(ops::cast(value, parsed.view.dtype()), result), result_order(flat, false));
  const int64_t n = numel(flat.index_shape);
  Ints row_shape{n};
  for (int64_t d : flat.rest) row_shape.push_back(d);
  rows = ops::reshape(rows, row_shape);
  Ints column(row_shape.size(), 1);
  column[0] = n;
  const Value index = ops::expand(ops::reshape(flat.index, column), Shape(row_shape));
  return ops::scatter(flat.base, index, rows, 0);
}

}  // namespace

Value get_item(const Value& x, nb::handle index) {
  const Parsed parsed = parse(x, index);
  if (parsed.tensors.empty())
    return parsed.view.ptr() == x.ptr() ? ops::slice_axis(x, 0, 0, x.rank() ? x.shape()[0] : 0) : parsed.view;
  GilRelease release;
  return gather_flat(flatten_index(parsed));
}

void set_item(const Value& x, nb::handle index, nb::handle value) {
  // A full-shape mask with one value needs no positions, so it can be traced.
  nb::detail::make_caster<Value> mask;
  if (mask.from_python(index, 0, nullptr) && mask.value.dtype() == DType::kBool && mask.value.shape() == x.shape()) {
    const Value source = value_to_set(value, x);
    if (source.rank() == 0) {
      update_in_place(x, [&](const Value& old) { return ops::where(mask.value, ops::cast(source, x.dtype()), old); });
      return;
    }
  }
  const Parsed parsed = parse(x, index);
  const Value source = value_to_set(value, x);
  GilRelease release;
  if (parsed.tensors.empty()) {
    write_in_place(parsed.view, source);
    return;
  }
  update_in_place(parsed.view, [&](const Value& old) {
    Parsed current = parsed;
    current.view = old;
    const Flat flat = flatten_index(current);
    const Value updated = with_rows(flat, current, source);
    // Back from (merged, rest...) to the view's order of dims.
    Ints shape, order, inverse;
    std::vector<int> indexed;
    for (const auto& [dim, t] : parsed.tensors) indexed.push_back(dim);
    for (int d : indexed) order.push_back(d);
    for (int d = 0; d < old.rank(); ++d)
      if (std::find(indexed.begin(), indexed.end(), d) == indexed.end()) order.push_back(d);
    for (int64_t d : order) shape.push_back(old.shape()[static_cast<int>(d)]);
    inverse.resize(order.size());
    for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
    return ops::permute(ops::reshape(updated, shape), inverse);
  });
}

}  // namespace sluice::python
