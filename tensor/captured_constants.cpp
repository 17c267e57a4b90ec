#include "tensor/captured_constants.h"

#include <fmt/format.h>

#include "tensor/eager_memory.h"

namespace sluice {
namespace {

std::string key_of(const Value& value) {
  const EagerImpl& impl = eager_impl(value);
  if (numel(value.shape()) == 1 && impl.on_host() && !impl.global)
    return value.type().str() + ":" +
           std::string(static_cast<const char*>(Tensor(value).read()), dtype_size(value.dtype()));
  return fmt::format("{}+{}v{}:{}{}", fmt::ptr(impl.storage().get()), impl.offset(), impl.version(), value.type().str(),
                     impl.spec().strides.str());
}

}  // namespace

graph::ValueId& CapturedConstants::of(const Value& value) {
  std::string key = key_of(value);
  taken_.add(eager_impl(value));
  return values_.try_emplace(std::move(key), graph::kNoValue).first->second;
}

void CapturedConstants::add(const Value& value, const std::string& name, const Value& content) {
  tensors_.emplace_back(name, content);
  alive_.push_back(value);
  memory_.insert(eager_impl(value).storage().get());
}

const Tensor* CapturedConstants::find(const std::string& name) const {
  for (const auto& [known, tensor] : tensors_)
    if (known == name) return &tensor;
  return nullptr;
}

void CapturedConstants::take(const Value& value) { taken_.add(eager_impl(value)); }

TakenContents CapturedConstants::give_taken() {
  TakenContents taken = std::move(taken_);
  taken.forget_changed();
  return taken;
}

void CapturedConstants::give_tensors(std::map<std::string, Tensor>& variables) {
  for (auto& [name, tensor] : tensors_) variables[name] = std::move(tensor);
}

}  // namespace sluice
