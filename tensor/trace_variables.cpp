#include "tensor/trace_variables.h"

#include <fmt/format.h>

#include <utility>

#include "tensor/eager_memory.h"

namespace sluice {

std::vector<ViewStep> TraceVariable::steps_to(const EagerImpl& impl) const {
  const EagerImpl& whole = eager_impl(tensor);
  if (impl.spec() == whole.spec() && impl.offset() == whole.offset()) return {};
  const auto* base = static_cast<const EagerImpl*>(impl.base().get());
  SLUICE_CHECK_KIND(
      kUnsupported, base && base->spec() == whole.spec() && base->offset() == whole.offset(),
      "trace: a tensor shares the memory of variable '{}' in a way the graph cannot follow: {} of {}; make "
      "the view inside the graph",
      name, impl.type().str(), whole.type().str());
  return impl.view_steps();
}

TraceVariable* TraceVariables::find(const Storage* memory) const {
  const auto found = all_.find(memory);
  return found == all_.end() ? nullptr : found->second.get();
}

TraceVariable& TraceVariables::add(const std::string& name, const Value& tensor, std::shared_ptr<TraceCell> cell) {
  auto variable = std::make_unique<TraceVariable>();
  variable->name = name;
  variable->tensor = tensor;
  variable->cell = std::move(cell);
  return *all_.emplace(eager_impl(tensor).storage().get(), std::move(variable)).first->second;
}

std::string GraphNames::take(const std::string& prefix) {
  std::string name;
  do name = fmt::format("{}{}", prefix, next_[prefix]++);
  while (!taken_.insert(name).second);
  return name;
}

}  // namespace sluice
