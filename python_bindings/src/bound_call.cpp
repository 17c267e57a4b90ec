// Calls of a plan whose guards need no Python: what compiled code does where nothing has changed since its last call.
#include <algorithm>

#include "autocast.h"
#include "bindings.h"
#include "collected.h"
#include "graph/ops/creation.h"
#include "graph/tape.h"
#include "graph_object.h"
#include "live_graphs.h"
#include "same_objects.h"
#include "tensor/session/graph_session.h"
#include "tensor/trace.h"

namespace sluice::python {
namespace {

// Settings of this thread and of the process on which a trace depends.
struct CallFlags {
  bool grad = true, inference = false;
  DType dtype = DType::kFloat32;
  AutocastState autocast;
  std::optional<DeviceId> device;
  bool operator==(const CallFlags&) const = default;
};
// inference_mode() of the thread, which differs from no_grad() in what asks for it.
thread_local bool inferring = false;
CallFlags call_flags() { return {grad_enabled(), inferring, ops::default_dtype(), autocast_now(), placement_device()}; }

// Views of one memory, or tensors over parts of one array that overlap. Results that are not there yet have their own.
bool share_memory(const EagerImpl& a, const EagerImpl& b) {
  if (a.version_counter() == b.version_counter()) return true;
  if (!(a.device() == b.device()) || !a.ready() || !b.ready()) return false;
  const auto begin_of = [](const EagerImpl& t) { return reinterpret_cast<uintptr_t>(t.storage()->data()); };
  return begin_of(a) < begin_of(b) + b.storage()->bytes() && begin_of(b) < begin_of(a) + a.storage()->bytes();
}

// Whether the memory of one of `written` overlaps that of another tensor of `all`.
bool overlap(const std::vector<nb::handle_t<Tensor>>& written, const std::vector<nb::handle_t<Tensor>>& all) {
  return std::any_of(written.begin(), written.end(), [&](const nb::handle_t<Tensor>& one) {
    const auto* a = static_cast<const EagerImpl*>(nb::inst_ptr<Tensor>(one)->impl());
    return std::any_of(all.begin(), all.end(), [&](const nb::handle_t<Tensor>& other) {
      const auto* b = static_cast<const EagerImpl*>(nb::inst_ptr<Tensor>(other)->impl());
      return a != b && share_memory(*a, *b);
    });
  });
}

// Thread safety: calls take turns by the GIL; steps run without it.
class BoundCall {
 public:
  // For calls with tensors like these, at each of which all of `same` (SameObjects) hold, and none of `taken`
  // (TakenContents) has changed. `build` makes the result of a list of the plan's results with these numbers; None: it
  // is the only one.
  BoundCall(nb::handle_t<PyGraph> graph, const std::vector<nb::handle_t<Tensor>>& like, std::vector<nb::object> same,
            std::vector<nb::object> taken, std::vector<size_t> numbers, nb::object build)
      : graph_(nb::borrow(graph)),
        build_(std::move(build)),
        same_(std::move(same)),
        taken_(std::move(taken)),
        numbers_(std::move(numbers)),
        flags_(call_flags()) {
    for (const nb::handle_t<Tensor>& tensor : like) {
      const Tensor& t = *nb::inst_ptr<Tensor>(tensor);
      const auto first = std::find_if(like.begin(), like.end(), [&](const nb::handle_t<Tensor>& other) {
        return nb::inst_ptr<Tensor>(other)->impl() == t.impl();
      });
      like_.push_back({t.spec(), t.requires_grad(), static_cast<size_t>(first - like.begin())});
    }
  }

  // The result; None, and nothing is done, where Python has to look.
  nb::object call(const nb::tuple& arguments) const {
    std::vector<Tensor> inputs;
    if (!fits(arguments, inputs) || current_trace() != nullptr || !(call_flags() == flags_)) return nb::none();
    for (const nb::object& objects : same_)
      if (!nb::inst_ptr<SameObjects>(objects)->hold()) return nb::none();
    for (const nb::object& contents : taken_)
      if (nb::inst_ptr<TakenContents>(contents)->changed()) return nb::none();
    const std::shared_ptr<GraphSession> session = nb::inst_ptr<PyGraph>(graph_)->get();
    std::vector<Tensor> outputs;
    {
      const GilRelease release;
      outputs = session->call(inputs);
      inputs.clear();  // memory may go with them
    }
    if (build_.is_none()) return nb::cast(Value(outputs[numbers_.front()]));
    nb::list results;
    for (const size_t number : numbers_) results.append(nb::cast(Value(outputs[number])));
    return build_(results);
  }

  int visit(visitproc visit, void* arg) const {
    Py_VISIT(graph_.ptr());
    Py_VISIT(build_.ptr());
    for (const nb::object& objects : same_) Py_VISIT(objects.ptr());
    for (const nb::object& contents : taken_) Py_VISIT(contents.ptr());
    return 0;
  }
  void clear() {
    const nb::object graph = std::move(graph_), build = std::move(build_);
    const std::vector<nb::object> same = std::move(same_), taken = std::move(taken_);
  }

 private:
  struct Like {
    TensorSpec spec;
    bool requires_grad;
    size_t first;  // of the arguments with the same tensor
  };

  // On the host, with all of the memory; a class derived from Tensor may be something else to the code.
  bool fits(const nb::tuple& arguments, std::vector<Tensor>& inputs) const {
    static PyObject* const plain = nb::type<Tensor>().ptr();
    if (arguments.size() != like_.size()) return false;
    inputs.reserve(like_.size());
    for (size_t i = 0; i < like_.size(); ++i) {
      const nb::handle argument = arguments[i];
      if (reinterpret_cast<PyObject*>(Py_TYPE(argument.ptr())) != plain || !nb::inst_ready(argument)) return false;
      const Tensor& t = *nb::inst_ptr<Tensor>(argument);
      if (!t.defined() || t.traced() || !(t.spec() == like_[i].spec) || t.device() != DeviceId{}) return false;
      if (t.requires_grad() != like_[i].requires_grad || static_cast<const EagerImpl&>(*t.impl()).global) return false;
      inputs.push_back(t);
      for (size_t j = 0; j < i; ++j)
        if ((inputs[j].impl() == t.impl()) != (like_[i].first == like_[j].first)) return false;
    }
    return true;
  }

  nb::object graph_, build_;
  std::vector<nb::object> same_, taken_;
  std::vector<Like> like_;
  std::vector<size_t> numbers_;
  const CallFlags flags_;
};

}  // namespace

void bind_bound_call(nb::module_& m) {
  m.def(
      "call_flags",
      [] {
        const CallFlags flags = call_flags();
        return nb::make_tuple(flags.grad, flags.inference, flags.dtype,
                              nb::make_tuple(flags.autocast.enabled, flags.autocast.dtype, flags.autocast.cache),
                              flags.device);
      },
      "Grad mode, inference mode, default dtype, autocast and default device: on what a trace depends besides what it "
      "reads.");
  m.def("overlap", &overlap, nb::arg("written"), nb::arg("all"),
        "Whether the memory of one of `written` overlaps that of another tensor of `all`.");
  m.def("is_inference_mode_enabled", [] { return inferring; });
  m.def(
      "set_inference_mode", [](bool mode) { inferring = mode; }, nb::arg("mode"));
  nb::class_<BoundCall>(m, "BoundCall", nb::type_slots(collected_slots<BoundCall>()),
                        "Calls of a plan that need no Python to see that it fits.")
      .def(nb::init<nb::handle_t<PyGraph>, const std::vector<nb::handle_t<Tensor>>&, std::vector<nb::object>,
                    std::vector<nb::object>, std::vector<size_t>, nb::object>(),
           nb::arg("graph"), nb::arg("like"), nb::arg("same"), nb::arg("taken"), nb::arg("numbers"),
           nb::arg("build").none())
      .def("__call__", &BoundCall::call, nb::arg("arguments"),
           "The result; None, and nothing is done, where Python has to look.");
}

}  // namespace sluice::python
