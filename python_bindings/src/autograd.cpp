// Backward passes, modes of the tape, and user functions on it.
#include "bindings.h"
#include "graph/autodiff/anomaly.h"
#include "graph/autodiff/saved_hooks.h"
#include "graph/executor.h"
#include "graph/ops/comparison.h"
#include "graph/ops/reduction.h"
#include "graph/tape.h"
#include "source_location.h"

namespace sluice::python {
namespace {

// Scopes of this thread that Python opens and closes, innermost last.
template <class Scope>
std::vector<std::unique_ptr<Scope>>& scopes() {
  thread_local std::vector<std::unique_ptr<Scope>> stack;
  return stack;
}

// The object that a Python hook made of a saved value.
class PackedObject final : public PackedValue {
 public:
  PackedObject(const SharedObject& unpack, nb::object packed) : unpack_(unpack), packed_(std::move(packed)) {}
  Value unpack() override {
    GilAcquire gil;
    nb::object made = unpack_.get()(packed_.get());
    Value value;
    if (!nb::try_cast(made, value))
      fail(ErrorKind::kType, "saved_tensors_hooks: Output of saved tensor unpack_hook: got {}; must be a Tensor",
           Py_TYPE(made.ptr())->tp_name);
    return value;
  }

 private:
  const SharedObject unpack_, packed_;
};

SavedHooksScope::Pack pack_by(nb::callable pack, nb::callable unpack) {
  return [pack = SharedObject(pack), unpack = SharedObject(unpack)](const Value& value) {
    GilAcquire gil;
    return std::make_shared<PackedObject>(unpack, pack.get()(value));
  };
}

bool has_nan(const Value& value) {
  if (value.impl()->traced() || !is_differentiable(value.dtype())) return false;
  const GradMode off(false);
  return std::get<bool>(Tensor(ops::any(ops::isnan(value))).item());
}

// A tensor that a user function saves. Its history is that of an argument, or that of a result, whose node sees the
// function and so this: it is seen weakly.
class SavedTensor {
 public:
  explicit SavedTensor(const Value& value) : saved_(value), history_(gradient_edge(value)) {}
  void is_output(const Value& recorded) {
    const GradNode::Next edge = gradient_edge(recorded);
    history_ = {};
    output_of_ = edge.node;
    index_ = edge.index;
  }
  Value get(const std::string& keeper) const {
    const Value value =
        saved_.get(keeper.c_str(), history_.node ? history_ : GradNode::Next{output_of_.lock(), index_});
    value.impl()->refresh_history();  // throws when it was written since
    return value;
  }

 private:
  SavedValue saved_;
  GradNode::Next history_;
  std::weak_ptr<GradNode> output_of_;
  int index_ = 0;
};

std::vector<Value> values(const std::vector<OptionalValue>& list) {
  std::vector<Value> result;
  for (const OptionalValue& v : list) result.push_back(v.value);
  return result;
}

BackwardOptions options_of(bool create_graph, std::optional<bool> retain_graph, bool allow_unused = false) {
  return {create_graph, retain_graph, allow_unused};
}

// Gradients of a user function's inputs, by calling its Python backward.
std::vector<Value> call_backward(const SharedObject& backward, std::span<const Value> grads) {
  GilAcquire gil;
  nb::list list;
  for (const Value& grad : grads) list.append(nb::cast(grad));
  return values(nb::cast<std::vector<OptionalValue>>(backward.get()(nb::tuple(list))));
}

}  // namespace

void bind_autograd(nb::module_& m) {
  m.def("is_grad_enabled", &grad_enabled);
  m.def("set_grad_enabled", &set_grad_enabled);
  m.def(
      "push_saved_hooks",
      [](std::optional<nb::callable> pack, std::optional<nb::callable> unpack) {
        scopes<SavedHooksScope>().push_back(
            std::make_unique<SavedHooksScope>(pack && unpack ? pack_by(*pack, *unpack) : SavedHooksScope::Pack()));
      },
      nb::arg("pack").none(), nb::arg("unpack").none());
  m.def("pop_saved_hooks", [] { scopes<SavedHooksScope>().pop_back(); });
  m.def("push_anomaly", [](bool on, bool check_nan) {
    scopes<AnomalyScope>().push_back(std::make_unique<AnomalyScope>(
        on ? AnomalyScope::Line(user_location) : nullptr, check_nan ? AnomalyScope::HasNan(has_nan) : nullptr));
  });
  m.def("pop_anomaly", [] { scopes<AnomalyScope>().pop_back(); });
  nb::class_<SavedTensor>(m, "SavedTensor")
      .def(nb::init<const Value&>())
      .def("is_output", &SavedTensor::is_output)
      .def("get", &SavedTensor::get);
  m.def(
      "backward",
      [](const std::vector<Value>& outputs, const std::vector<OptionalValue>& grads, bool create_graph,
         std::optional<bool> retain_graph) {
        const std::vector<Value> grad_outputs = values(grads);
        GilRelease release;
        backward(outputs, grad_outputs, options_of(create_graph, retain_graph));
      },
      nb::arg("outputs"), nb::arg("grad_outputs"), nb::arg("create_graph"), nb::arg("retain_graph").none());
  m.def(
      "grad",
      [](const std::vector<Value>& outputs, const std::vector<Value>& inputs, const std::vector<OptionalValue>& grads,
         bool create_graph, std::optional<bool> retain_graph, bool allow_unused) {
        const std::vector<Value> grad_outputs = values(grads);
        GilRelease release;
        return grad(outputs, inputs, grad_outputs, options_of(create_graph, retain_graph, allow_unused));
      },
      nb::arg("outputs"), nb::arg("inputs"), nb::arg("grad_outputs"), nb::arg("create_graph"),
      nb::arg("retain_graph").none(), nb::arg("allow_unused"));
  m.def("queue_callback", [](nb::callable done) {
    queue_callback([done = SharedObject(done)](bool succeeded) {
      GilAcquire gil;
      done.get()(succeeded);
    });
  });
  // Fresh aliases of `outputs` whose history is the Python function `backward` of `inputs`.
  m.def("record_function", [](const std::string& name, const std::vector<Value>& inputs,
                              const std::vector<Value>& outputs, nb::callable backward) {
    static auto* names = new std::vector<std::unique_ptr<std::string>>();  // GradNode keeps the pointer
    const char* stored = nullptr;
    for (const auto& known : *names)
      if (*known == name) stored = known->c_str();
    if (stored == nullptr) stored = names->emplace_back(std::make_unique<std::string>(name))->c_str();
    std::vector<Value> recorded;
    for (const Value& output : outputs) {
      recorded.push_back(current_executor().detach(output));
      const auto& memory = tensor_impl(output).version_counter();
      if (std::any_of(inputs.begin(), inputs.end(),
                      [&](const Value& v) { return tensor_impl(v).version_counter() == memory; }))
        tensor_impl(recorded.back()).made_by_function();
    }
    record_function(stored, inputs, recorded, [backward = SharedObject(backward)](std::span<const Value> grads) {
      return call_backward(backward, grads);
    });
    return recorded;
  });
}

}  // namespace sluice::python
