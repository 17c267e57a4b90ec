#include "subscript.h"

#include "bindings.h"
#include "call_place.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "tensor/chosen.h"
#include "tensor/tensor.h"

namespace sluice::python {
namespace {

// The view that the ints, slices, None and Ellipsis select, and the index tensors left for its dims.
struct Indexed {
  int dim;
  Value at;
  bool in_range;  // whatever it holds
};
struct GraphMask {  // part of a graph, as the result is then, which is as long as the data say
  Value mask;
  int dim;  // of the view, where it begins
  Chosen chosen;
};
struct Parsed {
  Value view;
  std::vector<Indexed> tensors;  // by dim of the view, ascending
  bool adjacent = true;
  std::optional<GraphMask> masked = {};
};

Value index_tensor(nb::handle item) {
  nb::detail::make_caster<Value> caster;
  if (caster.from_python(item, 0, nullptr)) return caster.value;
  if (!PyUnicode_Check(item.ptr()) && (PySequence_Check(item.ptr()) || nb::hasattr(item, "__array__"))) {
    const bool list = !nb::hasattr(item, "__array__");
    const Py_ssize_t size = list ? PySequence_Size(item.ptr()) : 1;
    if (size < 0) throw nb::python_error();
    if (size == 0) return ops::zeros({0}, DType::kInt64);
    return nb::cast<Tensor>(nb::module_::import_("sluice").attr("as_tensor")(list ? nb::list(item) : item));
  }
  fail(PyFloat_Check(item.ptr()) ? ErrorKind::kIndex : ErrorKind::kType,
       "index: got {}; must be ints, slices (`:`), None, ellipsis (`...`), or tensors of integers or bool",
       Py_TYPE(item.ptr())->tp_name);
}

// As torch: a uint8 tensor is a mask.
bool is_mask(const Value& t) { return t.dtype() == DType::kBool || t.dtype() == DType::kUInt8; }

// As torch: a list stands for a tuple when one of its elements cannot be a number.
bool stands_for_tuple(nb::handle index) {
  if (PyTuple_Check(index.ptr())) return true;
  if (!PyList_Check(index.ptr())) return false;
  for (nb::handle item : nb::borrow<nb::list>(index))
    if (item.is_none() || item.ptr() == Py_Ellipsis || PySlice_Check(item.ptr()) || PySequence_Check(item.ptr()) ||
        nb::isinstance<Tensor>(item))
      return true;
  return false;
}

std::vector<nb::object> items_of(nb::handle index) {
  std::vector<nb::object> items;
  if (stands_for_tuple(index))
    for (nb::handle item : nb::borrow<nb::sequence>(index)) items.push_back(nb::borrow(item));
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
  return is_mask(t) ? t.rank() : 1;
}

Value slice_of(const Value& x, int dim, nb::handle item) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(item.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
  if (step <= 0) fail(ErrorKind::kValue, "index: slice step is {}; must be positive", step);
  PySlice_AdjustIndices(x.shape()[dim], &start, &stop, step);
  if (start == 0 && stop == x.shape()[dim] && step == 1) return x;
  return ops::slice_axis(x, dim, start, std::max(start, stop), step);
}

// As torch: indices may be on the cpu, wherever the tensor is.
Value on_device_of(const Value& x, const Value& index) {
  if (index.device() == x.device() || index.impl()->traced() || current_trace() != nullptr) return index;
  SLUICE_CHECK_KIND(kRuntime, index.device().kind == DeviceKind::kCpu,
                    "index: indices should be either on cpu or on the same device as the indexed tensor ({}): got {}",
                    x.device().str(), index.device().str());
  return Tensor(index).to(x.device());
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
  const auto index_by = [&](const Value& at, bool in_range) {
    if (!parsed.tensors.empty() && parsed.tensors.back().dim != dim - 1) parsed.adjacent = false;
    parsed.tensors.push_back({dim++, at, in_range});
  };
  // A bool without axes adds a dim: of size 1 where it is true, else 0.
  const auto index_by_bool = [&](bool on) {
    parsed.view = ops::unsqueeze(parsed.view, dim);
    index_by(ops::zeros({on ? 1 : 0}, DType::kInt64), true);
  };
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
      index_by_bool(item.ptr() == Py_True);
    } else {
      const Value t = on_device_of(x, index_tensor(item));
      if (is_mask(t) && t.rank() == 0) {
        index_by_bool(std::get<bool>(Tensor(ops::cast(t, DType::kBool)).item()));
      } else if (is_mask(t)) {
        for (int i = 0; i < t.rank(); ++i)
          if (t.shape()[i] != parsed.view.shape()[dim + i])
            fail(ErrorKind::kIndex, "index: mask of shape {} does not match the tensor of shape {}", t.shape().str(),
                 x.shape().str());
        const Chosen chosen(t, "index", "use where(mask, x, y), which keeps the shape");
        if (chosen.count().defined()) {
          SLUICE_CHECK_KIND(kUnsupported, !parsed.masked,
                            "index: two masks that are part of a graph; as many elements as each of them chooses need "
                            "not be equal: use one mask, or indices made by nonzero()");
          parsed.masked = GraphMask{t, dim, chosen};
        }
        for (const Value& i : chosen.columns()) index_by(i, true);
      } else {
        if (t.dtype() != DType::kInt64 && t.dtype() != DType::kInt32)
          fail(ErrorKind::kIndex, "index: got a tensor of {}; must be int64, int32, uint8 or bool",
               dtype_name(t.dtype()));
        index_by(t, false);
      }
    }
  }
  return parsed;
}

// The indexed dims merged, with one flat index into them: x[..., idx, idx, ...] as index_select along one dim.
struct Flat {
  Value base;         // the view with (rest[:at], merged, rest[at:])
  Value index;        // int64, flat
  Shape index_shape;  // of the broadcast index tensors
  Shape rest;         // dims not indexed
  Ints order;         // of the view's dims, before those that are indexed are merged
  int at = 0;         // where the index dims go among `rest` in the result

  // rest[:at] + middle + rest[at:].
  Shape around(const Shape& middle) const {
    Shape shape;
    for (int i = 0; i < at; ++i) shape.push_back(rest[i]);
    for (const int64_t d : middle) shape.push_back(d);
    for (int i = at; i < rest.rank(); ++i) shape.push_back(rest[i]);
    return shape;
  }
};

Flat flatten_index(const Parsed& parsed) {
  Flat flat;
  const Shape& shape = parsed.view.shape();
  int64_t merged = 1;
  for (const Indexed& i : parsed.tensors) {
    merged *= shape[i.dim];
    flat.index_shape = broadcast_shapes(flat.index_shape, i.at.shape(), "index");
  }
  flat.at = parsed.adjacent ? parsed.tensors.front().dim : 0;
  std::vector<int> left;
  for (int d = 0; d < shape.rank(); ++d)
    if (std::none_of(parsed.tensors.begin(), parsed.tensors.end(), [d](const Indexed& i) { return i.dim == d; }))
      left.push_back(d);
  for (const int d : left) flat.rest.push_back(shape[d]);
  flat.order.assign(left.begin(), left.begin() + flat.at);
  for (const Indexed& i : parsed.tensors) flat.order.push_back(i.dim);
  flat.order.insert(flat.order.end(), left.begin() + flat.at, left.end());
  const Value moved = parsed.adjacent ? parsed.view : ops::permute(parsed.view, flat.order);
  flat.base = ops::reshape(moved, flat.around({merged}).vec());
  std::vector<Value> indices;
  Ints sizes;
  for (const Indexed& i : parsed.tensors) {
    indices.push_back(ops::expand(ops::cast(i.at, DType::kInt64), flat.index_shape));
    sizes.push_back(shape[i.dim]);
  }
  const bool plain = indices.size() == 1 && parsed.tensors[0].in_range;
  flat.index = ops::reshape(plain ? indices[0] : ops::flat_index(indices, sizes), {numel(flat.index_shape)});
  return flat;
}

Value gather_flat(const Flat& flat) {
  return ops::reshape(ops::index_select(flat.base, flat.index, flat.at), flat.around(flat.index_shape).vec());
}

Value value_to_set(nb::handle value, const Value& x) {
  std::optional<ops::Operand> operand;
  if (operand_from(value, &operand)) return operand->is_number() ? operand->to(x.dtype()) : operand->value();
  return on_device_of(x, nb::cast<Tensor>(nb::module_::import_("sluice").attr("as_tensor")(value)));
}

// As torch: axes of size 1 in front of those there is room for do not count.
Value without_leading_ones(Value value, int rank) {
  Ints shape = value.shape().vec();
  while (static_cast<int>(shape.size()) > rank && shape.front() == 1) shape.erase(shape.begin());
  return ops::reshape(value, shape);
}

// The merged view with the indexed elements replaced: a scatter along its merged dim.
Value with_rows(const Flat& flat, const Value& value) {
  const Shape result = flat.around(flat.index_shape);
  const Value source = without_leading_ones(ops::cast(value, flat.base.dtype()), result.rank());
  const int64_t n = numel(flat.index_shape);
  const Shape rows = flat.around({n});
  Ints column(static_cast<size_t>(rows.rank()), 1);
  column[static_cast<size_t>(flat.at)] = n;
  const Value index = ops::expand(ops::reshape(flat.index, column), rows);
  return ops::scatter(flat.base, index, ops::reshape(ops::expand(source, result), rows.vec()), flat.at);
}

// `old` with `source` where the mask is true: one for all, or a row for each of those that it chooses, in order.
Value with_chosen(const GraphMask& masked, const Value& old, const Value& source) {
  const Ints mask = masked.mask.shape().vec();
  const auto behind = static_cast<size_t>(old.rank() - masked.dim) - mask.size();  // axes
  Ints column = mask;
  column.resize(mask.size() + behind, 1);
  const Value there = ops::reshape(ops::cast(masked.mask, DType::kBool), column);
  Value value = without_leading_ones(ops::cast(source, old.dtype()), masked.dim + 1 + static_cast<int>(behind));
  const int axis = value.rank() - static_cast<int>(behind) - 1;  // along the rows
  if (axis < 0) return ops::where(there, value, old);
  // The axis of rows becomes those of the mask.
  Ints shape = value.shape().vec(), axes(mask.size(), 1);
  if (shape[static_cast<size_t>(axis)] != 1) {
    SLUICE_CHECK_KIND(
        kUnsupported, masked.chosen.as_long(value, axis),
        "index: {} assigned to what a mask that is part of a graph chooses; must be one value for all, or "
        "rows that the same mask has chosen",
        source.type().str());
    value = masked.chosen.spread(value, axis);
    axes = mask;
  }
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, axes.begin(), axes.end());
  return ops::where(there, ops::reshape(value, shape), old);
}

}  // namespace

Value view_of_all(const Value& x) { return ops::slice(x, Ints(x.rank(), 0), x.shape().vec(), Ints(x.rank(), 1)); }

Value get_item(const Value& x, nb::handle index) {
  const CallPlace place(CallPlace::of(&x));
  Parsed parsed = parse(x, index);
  if (parsed.tensors.empty()) return parsed.view.ptr() == x.ptr() ? view_of_all(x) : parsed.view;
  GilRelease release;
  if (!parsed.masked) return gather_flat(flatten_index(parsed));
  const auto& [mask, dim, chosen] = *parsed.masked;
  parsed.view = filled_up(parsed.view, dim, mask.rank());
  const Flat flat = flatten_index(parsed);
  for (const Indexed& i : parsed.tensors) {
    const bool fits = i.in_range || numel(i.at.shape()) == 1 || (i.at.rank() == 1 && chosen.as_long(i.at, 0));
    SLUICE_CHECK_KIND(kUnsupported, fits,
                      "index: {} beside a mask that is part of a graph; must be one index, or what the same mask has "
                      "chosen",
                      i.at.type().str());
  }
  return chosen.rows(gather_flat(flat), flat.at);
}

void set_item(const Value& x, nb::handle index, nb::handle value) {
  const CallPlace place(CallPlace::of(&x));
  // A full-shape mask with one value needs no positions, so it can be traced.
  nb::detail::make_caster<Value> mask;
  if (mask.from_python(index, 0, nullptr) && is_mask(mask.value) && mask.value.shape() == x.shape()) {
    const Value source = value_to_set(value, x), chosen = on_device_of(x, ops::cast(mask.value, DType::kBool));
    if (source.rank() == 0) {
      update_in_place(x, [&](const Value& old) { return ops::where(chosen, ops::cast(source, x.dtype()), old); });
      return;
    }
  }
  const Parsed parsed = parse(x, index);
  const Value source = value_to_set(value, x);
  GilRelease release;
  if (parsed.tensors.empty()) {
    write_in_place(parsed.view, without_leading_ones(source, parsed.view.rank()));
    return;
  }
  SLUICE_CHECK_KIND(kUnsupported,
                    !parsed.masked || static_cast<int>(parsed.tensors.size()) == parsed.masked->mask.rank(),
                    "index: assigned to through a mask that is part of a graph and other indices; use the mask alone, "
                    "or where(mask, x, y)");
  update_in_place(parsed.view, [&](const Value& old) {
    if (parsed.masked) return with_chosen(*parsed.masked, old, source);
    Parsed current = parsed;
    current.view = old;
    const Flat flat = flatten_index(current);
    // Back to the view's order of dims.
    Ints shape, inverse(flat.order.size());
    for (size_t i = 0; i < flat.order.size(); ++i) {
      shape.push_back(old.shape()[static_cast<int>(flat.order[i])]);
      inverse[static_cast<size_t>(flat.order[i])] = static_cast<int64_t>(i);
    }
    const Value updated = ops::reshape(with_rows(flat, source), shape);
    return current.adjacent ? updated : ops::permute(updated, inverse);
  });
}

}  // namespace sluice::python
