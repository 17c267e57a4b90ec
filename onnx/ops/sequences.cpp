// Sequences and optionals: lists of tensors, and nothing.
#include "base/error.h"
#include "graph/ops/creation.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"
#include "onnx/table.h"

namespace sluice::onnx {
namespace {

Value whole(int64_t n) { return ops::full({}, static_cast<double>(n), DType::kInt64); }

// A position in a sequence of `size`, at its end where none is given.
size_t position(const Call& c, size_t input, size_t size, bool insert) {
  const auto n = static_cast<int64_t>(size);
  int64_t at = c.has(input) ? c.integer(input) : insert ? n : n - 1;
  if (at < 0) at += n;
  SLUICE_CHECK_KIND(kIndex, at >= 0 && (insert ? at <= n : at < n),
                    "position {} in a sequence of {}; must be within it", at, n);
  return static_cast<size_t>(at);
}

Items split_to_sequence(const Call& c) {
  const Value& x = c.in(0);
  const int axis = normalize_axis(c.i("axis"), x.rank(), "axis");
  const int64_t size = x.shape()[axis];
  const bool keep = c.has(1) || c.i("keepdims", 1) != 0;
  Ints sizes;
  if (!c.has(1)) {
    sizes.assign(static_cast<size_t>(size), 1);
  } else if (c.in(1).rank() == 0) {
    const int64_t each = c.integer(1);
    SLUICE_CHECK(each > 0, "parts of size {}; must be positive", each);
    for (int64_t at = 0; at < size; at += each) sizes.push_back(std::min(each, size - at));
  } else {
    sizes = c.ints(1);
  }
  std::vector<Item> items;
  int64_t at = 0;
  for (const int64_t n : sizes) {
    SLUICE_CHECK(n >= 0 && n <= size - at, "parts of {} along axis {}; must be all of it", size, axis);
    const Value piece = ops::narrow(x, axis, at, n);
    items.push_back(keep ? piece : ops::squeeze(piece, Ints{axis}));
    at += n;
  }
  return Item(std::move(items));
}

Items mapped(const Call& c) {
  const std::vector<Item>& first = c.sequence(0);
  std::vector<std::vector<Item>> outputs(c.outputs());
  for (size_t i = 0; i < first.size(); ++i) {
    std::vector<Item> inputs{first[i]};
    for (size_t k = 1; k < c.size(); ++k) {
      const Item& item = c.item(k);
      SLUICE_CHECK(!item.sequence || item.sequence->size() > i, "sequences of {} and {}; must be equally long",
                   first.size(), item.sequence->size());
      inputs.push_back(item.sequence ? (*item.sequence)[i] : item);
    }
    const std::vector<Item> made = c.run_items("body", std::move(inputs));
    for (size_t k = 0; k < outputs.size() && k < made.size(); ++k) outputs[k].push_back(made[k]);
  }
  Items items;
  for (auto& output : outputs) items.push_back(Item(std::move(output)));
  return items;
}

}  // namespace

Entries sequence_entries() {
  return {
      {"ConcatFromSequence",
       [](const Call& c) {
         std::vector<Value> values;
         for (const Item& item : c.sequence(0)) values.push_back(item.tensor);
         return c.i("new_axis") != 0 ? ops::stack(values, c.i("axis")) : ops::concat(values, c.i("axis"));
       }},
      {"Optional", [](const Call& c) -> Items { return c.item(0); }},
      {"OptionalGetElement",
       [](const Call& c) -> Items {
         SLUICE_CHECK(c.has(0), "the optional has no element; must have one");
         return c.item(0);
       }},
      {"OptionalHasElement", [](const Call& c) { return ops::full({}, c.has(0) ? 1 : 0, DType::kBool); }},
      {"SequenceAt", [](const Call& c) -> Items { return c.sequence(0)[position(c, 1, c.sequence(0).size(), false)]; },
       2},
      {"SequenceConstruct",
       [](const Call& c) {
         std::vector<Item> items;
         for (size_t i = 0; i < c.size(); ++i) items.push_back(c.in(i));
         return Item(std::move(items));
       }},
      {"SequenceEmpty", [](const Call&) { return Item(std::vector<Item>()); }},
      {"SequenceErase",
       [](const Call& c) {
         std::vector<Item> items = c.sequence(0);
         items.erase(items.begin() + static_cast<int64_t>(position(c, 1, items.size(), false)));
         return Item(std::move(items));
       },
       2},
      {"SequenceInsert",
       [](const Call& c) {
         std::vector<Item> items = c.sequence(0);
         items.insert(items.begin() + static_cast<int64_t>(position(c, 2, items.size(), true)), c.in(1));
         return Item(std::move(items));
       },
       4},
      {"SequenceLength", [](const Call& c) { return whole(static_cast<int64_t>(c.sequence(0).size())); }},
      {"SequenceMap", mapped},
      {"SplitToSequence", split_to_sequence, 2},
  };
}

}  // namespace sluice::onnx
