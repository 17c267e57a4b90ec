// Backward passes, gradient mode, and user functions on the tape.
#include "bindings.h"
#include "graph/autodiff/tape.h"
#include "graph/executor.h"

namespace sluice::python {
namespace {

std::vector<std::unique_ptr<GradMode>>& mode_stack() {
  thread_local std::vector<std::unique_ptr<GradMode>> stack;
  return stack;
}

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
  m.def("push_grad_mode", [](bool on) { mode_stack().push_back(std::make_unique<GradMode>(on)); });
  m.def("pop_grad_mode", [] { mode_stack().pop_back(); });
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
    for (const Value& output : outputs) recorded.push_back(current_executor().detach(output));
    record_function(stored, inputs, recorded, [backward = SharedObject(backward)](std::span<const Value> grads) {
      return call_backward(backward, grads);
    });
    return recorded;
  });
}

}  // namespace sluice::python
