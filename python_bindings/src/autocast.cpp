#include "autocast.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "graph/operand.h"
#include "tensor/trace.h"

namespace sluice::python {
namespace {

// Casts of leaves that require gradients, as weights are: one for all uses in a region.
using CastKey = std::tuple<const ValueImpl*, uint64_t, DType, TraceExecutor*>;
struct Cast {
  Value leaf;  // so that no other has its address
  Value cast;
};

struct Region {
  DeviceKind kind = DeviceKind::kCpu;  // of the devices whose functions it is for
  bool enabled = false;
  DType dtype = DType::kBFloat16;
  bool cache = true;
};

struct State {
  std::vector<Region> regions;
  std::map<CastKey, Cast> casts;

  // The first of these regions are no scopes: they hold until they are set anew.
  size_t lasting = 0;
  bool cache = true;  // outside of regions

  Region now() const { return regions.empty() ? Region{.cache = cache} : regions.back(); }
  // For functions on a device; where a graph places them is known later, so there the innermost region counts.
  Region now(const DeviceKind& kind) const {
    if (regions.empty() || current_trace() != nullptr) return now();
    const auto found = std::find_if(regions.rbegin(), regions.rend(), [&](const Region& r) { return r.kind == kind; });
    return found == regions.rend() ? Region{.cache = cache} : *found;
  }
};

State& state() {
  thread_local State here;
  return here;
}

std::map<std::string, std::vector<BoundForm*>>& forms_by_name() {
  static std::map<std::string, std::vector<BoundForm*>> forms;
  return forms;
}

bool is_castable(const Value& value) { return is_floating(value.dtype()) && value.dtype() != DType::kFloat64; }

Value cast_to(const Value& value, DType dtype) {
  if (!value.defined() || !is_castable(value) || value.dtype() == dtype) return value;
  const Tensor tensor(value);
  State& here = state();
  if (!here.now(value.device().kind).cache || !tensor.is_leaf() || !tensor.requires_grad() ||
      dtype_size(dtype) > dtype_size(value.dtype()))
    return tensor.to(dtype);
  const CastKey key{value.impl(), value.impl()->version(), dtype, current_trace()};
  auto found = here.casts.find(key);
  if (found == here.casts.end()) found = here.casts.emplace(key, Cast{value, tensor.to(dtype)}).first;
  return found->second.cast;
}

// Calls `visit` with each tensor among the arguments.
template <class Visit>
void for_each_tensor(FormArgs& args, Visit visit) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (Value* value = std::get_if<Value>(&args[i])) {
      if (value->defined()) visit(*value);
    } else if (auto* operand = std::get_if<ops::Operand>(&args[i])) {
      if (operand->is_number()) continue;
      Value value = operand->value();
      visit(value);
      args[i] = ops::Operand(value);
    } else if (auto* list = std::get_if<std::vector<Value>>(&args[i])) {
      for (Value& value : *list) visit(value);
    }
  }
}

DType widest(FormArgs& args, DType narrow) {
  DType found = narrow;
  for_each_tensor(args, [&](const Value& value) {
    if (is_floating(value.dtype())) found = promote(found, value.dtype());
  });
  return found;
}

}  // namespace

AutocastState autocast_now() {
  const Region now = state().now();
  return {now.enabled, now.dtype, now.cache};
}

void register_autocast(const std::string& name, BoundForm* form) { forms_by_name()[name].push_back(form); }

void autocast_arguments(const BoundForm& form, FormArgs& args) {
  if (form.autocast == CastPolicy::kNone) return;
  if (state().regions.empty()) return;
  DeviceKind kind = DeviceKind::kCpu;
  for_each_tensor(args, [&](const Value& value) {
    if (value.device().kind != DeviceKind::kCpu) kind = value.device().kind;
  });
  const Region region = state().now(kind);
  if (!region.enabled) return;
  const DType to = form.autocast == CastPolicy::kLower     ? region.dtype
                   : form.autocast == CastPolicy::kFloat32 ? DType::kFloat32
                                                           : widest(args, region.dtype);
  for_each_tensor(args, [to](Value& value) { value = cast_to(value, to); });
}

void bind_autocast(nb::module_& m) {
  m.def(
      "autocast_enter",
      [](const std::string& kind, bool enabled, DType dtype, bool cache) {
        state().regions.push_back({DeviceKind::named(kind), enabled, dtype, cache});
      },
      nb::arg("kind"), nb::arg("enabled"), nb::arg("dtype"), nb::arg("cache"));
  m.def("autocast_exit", [] {
    state().regions.pop_back();
    if (state().regions.size() == state().lasting) state().casts.clear();
  });
  m.def(
      "autocast_set",
      [](const std::string& kind, bool enabled, DType dtype) {
        State& here = state();
        const Region set{DeviceKind::named(kind), enabled, dtype, here.now().cache};
        const auto found = std::find_if(here.regions.rbegin(), here.regions.rend(),
                                        [&](const Region& r) { return r.kind == set.kind; });
        if (found != here.regions.rend()) {
          *found = set;
        } else {
          here.regions.insert(here.regions.begin(), set);
          ++here.lasting;
        }
      },
      nb::arg("kind"), nb::arg("enabled"), nb::arg("dtype"),
      "Changes this thread's innermost region of a kind of device; makes one that lasts where there is none.");
  m.def(
      "autocast_set_cache",
      [](bool enabled) { (state().regions.empty() ? state().cache : state().regions.back().cache) = enabled; },
      nb::arg("enabled"));
  m.def(
      "autocast_lower",
      [](std::vector<Value> tensors) {
        DeviceKind kind = DeviceKind::kCpu;
        for (const Value& tensor : tensors)
          if (tensor.defined() && tensor.device().kind != DeviceKind::kCpu) kind = tensor.device().kind;
        const Region region = state().now(kind);
        if (region.enabled)
          for (Value& tensor : tensors) tensor = cast_to(tensor, region.dtype);
        return tensors;
      },
      "As the arguments of a function that runs in the dtype of the region.");
  m.def("autocast_clear", [] { state().casts.clear(); });
  m.def(
      "autocast_state",
      [](const std::optional<std::string>& kind) {
        const Region now = kind ? state().now(DeviceKind::named(*kind)) : state().now();
        return nb::make_tuple(now.enabled, now.dtype, now.cache);
      },
      nb::arg("kind") = nb::none(), "Of this thread: (enabled, dtype, whether casts of weights are kept).");
  m.def(
      "set_autocast_policy",
      [](const std::string& name, int policy) {
        const auto found = forms_by_name().find(name);
        if (found == forms_by_name().end()) return false;
        for (BoundForm* form : found->second) form->autocast = static_cast<CastPolicy>(policy);
        return true;
      },
      nb::arg("name"), nb::arg("policy"), "False where there is no such function.");
}

}  // namespace sluice::python
