// Parts of deep copies, which keep who shares memory with whom (python/sluice/_tensor/pickling.py).
#include "bindings.h"
#include "graph/executor.h"
#include "graph/tape.h"
#include "tensor/eager.h"
#include "tensor/eager_memory.h"

namespace sluice::python {
namespace {

// All of a tensor's memory, more of which others may see, as bytes.
Value whole_memory(const Value& value) {
  const EagerImpl& impl = eager_impl(value);
  const TensorType bytes{DType::kUInt8, {static_cast<int64_t>(impl.storage()->bytes())}};
  return Value(std::make_shared<EagerImpl>(impl.storage(), TensorSpec::contiguous(bytes), impl.device(),
                                           impl.version_counter()));
}

// The bytes of whole_memory(), copied.
Value copied_memory(const Value& value) { return current_eager().copy(whole_memory(value)); }

// The view of `memory`, which copied_memory() has made, that is like `like`'s view of its own. All of one memory count
// versions together.
Value seen_alike(const Value& memory, const Value& like) {
  const EagerImpl &whole = eager_impl(memory), &impl = eager_impl(like);
  return Value(
      std::make_shared<EagerImpl>(whole.storage(), impl.spec(), impl.device(), whole.version_counter(), impl.offset()));
}

// The view of `base` that `like`, which has no history, is of its own.
Value viewed_alike(const Value& base, const Value& like) {
  const GradMode mode(!base.requires_grad());
  Value view = base;
  for (const ViewStep& step : eager_impl(like).view_steps()) view = call1(*step.op, {view}, step.attrs);
  return view;
}

}  // namespace

void bind_copies(nb::module_& m) {
  m.def("memory_of", [](const Value& t) { return reinterpret_cast<uintptr_t>(eager_impl(t).storage().get()); });
  m.def("whole_memory", &whole_memory);
  m.def("copied_memory", &copied_memory, Release());
  m.def("seen_alike", &seen_alike, Release());
  m.def("viewed_alike", &viewed_alike, Release());
}

}  // namespace sluice::python
