// Torch's spelling of movements: views, joins and parts of tensors.
#include <algorithm>
#include <numeric>

#include "graph/ops/creation.h"
#include "graph/ops/forms.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

// torch's expand: -1 keeps a dim.
Value expand_to(const Value& x, const Ints& size) {
  Shape shape(size);
  const int added = shape.rank() - x.rank();
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] == -1 && i >= added && added >= 0) shape[i] = x.shape()[i - added];
  return expand(x, shape);
}

Value squeeze_all(const Value& x) { return squeeze(x); }
Value squeeze_dims(const Value& x, const Ints& dim) { return squeeze(x, dim); }

// Each dim of `source` goes to the place that `destination` names; the others keep their order.
Value movedims(const Value& x, const Ints& source, const Ints& destination) {
  SLUICE_CHECK_KIND(kRuntime, source.size() == destination.size(),
                    "movedim: {} source dims and {} destination dims; there must be one each", source.size(),
                    destination.size());
  Ints dims(std::max(x.rank(), 1), -1), from;  // a tensor without axes has one to name
  for (int64_t dim : source) from.push_back(normalize_axis(dim, x.rank(), "movedim"));
  for (size_t i = 0; i < source.size(); ++i) {
    int64_t& place = dims[normalize_axis(destination[i], x.rank(), "movedim")];
    SLUICE_CHECK_KIND(kRuntime, place == -1 && std::count(from.begin(), from.end(), from[i]) == 1,
                      "movedim: a dim is named twice: {} to {}; each must be named once", attr_str(source),
                      attr_str(destination));
    place = from[i];
  }
  int64_t next = 0;
  for (int64_t& dim : dims) {
    if (dim != -1) continue;
    while (std::count(from.begin(), from.end(), next) > 0) ++next;
    dim = next++;
  }
  return x.rank() == 0 ? x : permute(x, dims);
}

Value transposed(const Value& x) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() <= 2, "t: expects a tensor with at most 2 dims: got {}", x.rank());
  return x.rank() < 2 ? x : transpose(x, 0, 1);
}

Value unflatten(const Value& x, int64_t dim, const Ints& sizes) {
  const int axis = normalize_axis(dim, x.rank(), "unflatten");
  SLUICE_CHECK_KIND(kRuntime, x.rank() > 0,
                    "unflatten: dim {} of a tensor without dims: got shape {}; it must have one", dim, x.shape().str());
  Ints shape = x.shape().vec();
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, sizes.begin(), sizes.end());
  const auto unknown = std::find(sizes.begin(), sizes.end(), -1);
  const int64_t product = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  const int64_t size = x.shape()[axis];
  const bool fits = unknown == sizes.end() ? product == size : product == 0 ? size == 0 : size % product == 0;
  SLUICE_CHECK_KIND(kRuntime, fits, "unflatten: sizes {} don't multiply up to the size of dim {}, {}; they must",
                    attr_str(sizes), dim, size);
  if (unknown != sizes.end() && product != 0) shape[axis + (unknown - sizes.begin())] = size / -product;
  return reshape(x, shape);
}

Value repeat(const Value& x, const Ints& repeats) {
  SLUICE_CHECK_KIND(kRuntime, static_cast<int>(repeats.size()) >= x.rank(),
                    "repeat: {} repeats for a tensor of {} dims; there must be at least as many", repeats.size(),
                    x.rank());
  return tile(x, repeats);
}

// Without dims, of the flattened tensor.
Value roll_by(const Value& x, const Ints& shifts, const Ints& dims) {
  if (!dims.empty() || shifts.size() != 1) return roll(x, shifts, dims);
  return reshape(roll(flatten(x), shifts, Ints{0}), x.shape().vec());
}

Value reshape_as(const Value& x, const Value& other) { return reshape(x, other.shape().vec()); }
Value expand_as(const Value& x, const Value& other) { return expand(x, other.shape()); }

Value hstack(const std::vector<Value>& tensors) {
  SLUICE_CHECK_KIND(kRuntime, !tensors.empty(), "hstack: no tensors; give at least one");
  std::vector<Value> raised;
  for (const Value& t : tensors) raised.push_back(t.rank() == 0 ? reshape(t, {1}) : t);
  return concat(raised, raised[0].rank() == 1 ? 0 : 1);
}

Value vstack(const std::vector<Value>& tensors) {
  SLUICE_CHECK_KIND(kRuntime, !tensors.empty(), "vstack: no tensors; give at least one");
  std::vector<Value> raised;
  for (const Value& t : tensors) raised.push_back(t.rank() < 2 ? reshape(t, {1, numel(t.shape())}) : t);
  return concat(raised, 0);
}

std::vector<Value> broadcast_tensors(const std::vector<Value>& tensors) {
  Shape shape;
  for (const Value& t : tensors) shape = broadcast_shapes(shape, t.shape(), "broadcast_tensors");
  std::vector<Value> out;
  for (const Value& t : tensors) out.push_back(expand(t, shape));
  return out;
}

std::vector<Value> meshgrid(const std::vector<Value>& tensors, const std::optional<std::string>& indexing) {
  const std::string order = indexing.value_or("ij");
  SLUICE_CHECK_KIND(kRuntime, !tensors.empty(), "meshgrid: expects a non-empty list of tensors: got none");
  SLUICE_CHECK(order == "ij" || order == "xy", "meshgrid: indexing is '{}'; must be 'ij' or 'xy'", order);
  Shape shape;
  for (const Value& t : tensors) {
    SLUICE_CHECK_KIND(kRuntime, t.rank() < 2, "meshgrid: a tensor has {} dims; must be a vector or a single element",
                      t.rank());
    shape.push_back(numel(t.shape()));
  }
  std::vector<Value> grids;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Ints view(tensors.size(), 1);
    view[i] = shape[static_cast<int>(i)];
    const Value grid = expand(reshape(tensors[i], view), shape);
    grids.push_back(order == "xy" && tensors.size() > 1 ? transpose(grid, 0, 1) : grid);
  }
  return grids;
}

using SplitEvery = std::vector<Value> (*)(const Value&, int64_t, int64_t);
using SplitInto = std::vector<Value> (*)(const Value&, const Ints&, int64_t);

Form view_form(const char* doc, std::vector<Overload> overloads, std::vector<const char*> aliases = {}) {
  return {.doc = doc, .overloads = std::move(overloads), .aliases = std::move(aliases), .sharing = Sharing::kView};
}

Form method_only(Form form) {
  form.function = false;
  return form;
}

Form function_only(Form form) {
  form.method = false;
  return form;
}

void add_views(std::vector<Form>& forms) {
  const auto view = [&](const char* doc, std::vector<Overload> overloads, std::vector<const char*> aliases = {}) {
    forms.push_back(view_form(doc, std::move(overloads), std::move(aliases)));
  };
  view("The elements in another shape, of which one dim may be -1: a view where the strides allow. torch.reshape.",
       {overload("reshape(Tensor input, int[] shape) -> Tensor", &reshape)});
  view("The dims in another order: a view. torch.permute.",
       {overload("permute(Tensor input, int[] dims) -> Tensor", &permute)});
  view("Broadcast to `size`: a view. torch.broadcast_to.",
       {overload("broadcast_to(Tensor input, int[] size) -> Tensor", &expand_to)});
  view("Without dims of size 1, all or those named: a view. torch.squeeze.",
       {overload("squeeze(Tensor input) -> Tensor", &squeeze_all),
        overload("squeeze(Tensor input, int[1] dim) -> Tensor", &squeeze_dims)});
  forms.back().in_place = true;
  view("With a dim of size 1 at `dim`: a view. torch.unsqueeze.",
       {overload("unsqueeze(Tensor input, int dim) -> Tensor", &unsqueeze)});
  forms.back().in_place = true;
  view("The dims from start_dim to end_dim as one; itself where that is one. torch.flatten.",
       {overload("flatten(Tensor input, int start_dim=0, int end_dim=-1) -> Tensor", &flatten)});
  forms.back().sharing = Sharing::kItself;
  view("Two dims exchanged: a view. torch.transpose.",
       {overload("transpose(Tensor input, int dim0, int dim1) -> Tensor", &transpose)}, {"swapdims"});
  forms.back().in_place = true;
  view("Two dims exchanged: a view. torch.swapaxes.",
       {overload("swapaxes(Tensor input, int axis0, int axis1) -> Tensor", &transpose)});
  forms.back().in_place = true;
  view("Dims moved to other places: a view. torch.movedim.",
       {overload("movedim(Tensor input, int[1] source, int[1] destination) -> Tensor", &movedims)}, {"moveaxis"});
  view("A matrix transposed; vectors and single elements as they are. torch.t.",
       {overload("t(Tensor input) -> Tensor", &transposed)});
  forms.back().in_place = true;
  view("One dim as several: a view. torch.unflatten.",
       {overload("unflatten(Tensor input, int dim, int[] sizes) -> Tensor", &unflatten)});
  view("`length` entries of a dim from `start` on: a view. torch.narrow.",
       {overload("narrow(Tensor input, int dim, int start, int length) -> Tensor", &narrow)});
  view("Entry `index` of a dim, which goes: a view. torch.select.",
       {overload("select(Tensor input, int dim, int index) -> Tensor", &select)});
  view("The entries of a dim, one by one: views. torch.unbind.",
       {overload("unbind(Tensor input, int dim=0) -> Tensor[]", &unbind)});
  view("About equal parts along a dim: views. torch.chunk.",
       {overload("chunk(Tensor input, int chunks, int dim=0) -> Tensor[]", &chunk)});
  const char* const parts = "Parts of one size, or of the sizes given, along a dim: views. torch.split.";
  const auto every = static_cast<SplitEvery>(&split);
  const auto into = static_cast<SplitInto>(&split);
  forms.push_back(function_only(
      view_form(parts, {overload("split(Tensor tensor, int split_size_or_sections, int dim=0) -> Tensor[]", every),
                        overload("split(Tensor tensor, int[] split_size_or_sections, int dim=0) -> Tensor[]", into)})));
  forms.push_back(
      method_only(view_form(parts, {overload("split(Tensor input, int split_size, int dim=0) -> Tensor[]", every),
                                    overload("split(Tensor input, int[] split_size, int dim=0) -> Tensor[]", into)})));
  forms.push_back(
      view_form("Parts of one size along a dim, which may be written to here, unlike in torch. torch.unsafe_split.",
                {overload("unsafe_split(Tensor input, int split_size, int dim=0) -> Tensor[]", every)}));
  forms.push_back(method_only(view_form("Broadcast to `size`, where -1 keeps a dim: a view. torch.Tensor.expand.",
                                        {overload("expand(Tensor input, int[] size) -> Tensor", &expand_to)})));
  forms.push_back(method_only(view_form("Broadcast to other's shape: a view. torch.Tensor.expand_as.",
                                        {overload("expand_as(Tensor input, Tensor other) -> Tensor", &expand_as)})));
  forms.push_back(method_only(view_form("In other's shape. torch.Tensor.reshape_as.",
                                        {overload("reshape_as(Tensor input, Tensor other) -> Tensor", &reshape_as)})));
  forms.push_back(
      function_only(view_form("All tensors broadcast to one shape: views. torch.broadcast_tensors.",
                              {overload("broadcast_tensors(Tensor... tensors) -> Tensor[]", &broadcast_tensors)})));
  forms.back().sharing = Sharing::kItself;
  forms.push_back(function_only(
      view_form("Coordinates of a grid from vectors, rows first ('ij') or columns first ('xy'). torch.meshgrid.",
                {overload("meshgrid(Tensor... tensors, *, str? indexing=None) -> Tensor[]", &meshgrid)})));
}

void add_copies(std::vector<Form>& forms) {
  const auto add = [&](const char* doc, Overload o, bool in_place = false, bool out = false) {
    forms.push_back({.doc = doc, .overloads = {std::move(o)}, .in_place = in_place, .out = out});
  };
  add("The entries of dims in reverse order. torch.flip.", overload("flip(Tensor input, int[] dims) -> Tensor", &flip));
  add("Repeated along its dims, new ones first. torch.tile.",
      overload("tile(Tensor input, int[] dims) -> Tensor", &tile));
  add("Moved along dims, what leaves at one end entering at the other; no dims: of the flattened tensor. torch.roll.",
      overload("roll(Tensor input, int[1] shifts, int[1] dims=[]) -> Tensor", &roll_by));
  add("The lower triangle of matrices, zeros above. torch.tril.",
      overload("tril(Tensor input, int diagonal=0) -> Tensor", &tril), true, true);
  add("The upper triangle of matrices, zeros below. torch.triu.",
      overload("triu(Tensor input, int diagonal=0) -> Tensor", &triu), true, true);
  forms.push_back({.doc = "Repeated along its dims, new ones first. torch.Tensor.repeat.",
                   .overloads = {overload("repeat(Tensor input, int[] repeats) -> Tensor", &repeat)},
                   .function = false});
}

void add_joins(std::vector<Form>& forms) {
  const auto join = [&](const char* doc, Overload o, std::vector<const char*> aliases = {}) {
    forms.push_back(
        {.doc = doc, .overloads = {std::move(o)}, .aliases = std::move(aliases), .method = false, .out = true});
  };
  join("Tensors one after another along a dim; dtypes are promoted. torch.cat.",
       overload("cat(Tensor[] tensors, int dim=0) -> Tensor", &concat), {"concat", "concatenate"});
  join("Tensors of one shape along a new dim. torch.stack.",
       overload("stack(Tensor[] tensors, int dim=0) -> Tensor", &stack));
  join("Tensors side by side: along the second dim, vectors along their only one. torch.hstack.",
       overload("hstack(Tensor[] tensors) -> Tensor", &hstack));
  join("Tensors on top of each other: along the first dim, vectors as rows. torch.vstack.",
       overload("vstack(Tensor[] tensors) -> Tensor", &vstack), {"row_stack"});
}

}  // namespace

std::vector<Form> shaping_forms() {
  std::vector<Form> forms;
  add_views(forms);
  add_copies(forms);
  add_joins(forms);
  return forms;
}

}  // namespace sluice::ops
