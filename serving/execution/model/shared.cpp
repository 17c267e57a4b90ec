#include "serving/execution/model/shared.h"

#include "serving/execution/model/core.h"

namespace sluice::serving {

std::shared_ptr<SharedResources> make_shared_resources(const ServerOptions& options) {
  return std::make_shared<SharedResources>(options);
}

void SharedResources::add(std::weak_ptr<ModelCore> model) {
  const std::lock_guard lock(mutex_);
  std::erase_if(models_, [](const auto& one) { return one.expired(); });
  models_.push_back(std::move(model));
}

void SharedResources::lost_a_thread() {
  std::vector<std::weak_ptr<ModelCore>> models;
  {
    const std::lock_guard lock(mutex_);
    models = models_;
  }
  for (const std::weak_ptr<ModelCore>& model : models)
    if (const std::shared_ptr<ModelCore> core = model.lock()) core->suspect();
}

}  // namespace sluice::serving
