#include "serving/repository/table.h"

#include <fmt/format.h>

#include <mutex>

#include "serving/core/error.h"
#include "serving/repository/names.h"

namespace sluice::serving {

// An old view is let go of outside of the lock, for that may run code.
void Table::set(const std::string& model, ModelView view) {
  const std::unique_lock lock(mutex_);
  std::swap(models_[model], view);
}

void Table::remove(const std::string& model) {
  ModelView gone;
  const std::unique_lock lock(mutex_);
  const auto found = models_.find(model);
  if (found == models_.end()) return;
  std::swap(found->second, gone);
  models_.erase(found);
}

void Table::clear() {
  std::unordered_map<std::string, ModelView> gone;
  const std::unique_lock lock(mutex_);
  std::swap(models_, gone);
}

const ModelView& Table::view(const std::string& model) const {
  const auto found = models_.find(model);
  if (found == models_.end())
    throw Error(Code::kNotFound, fmt::format("Request for unknown model: '{}' is not found", shown(model)));
  return found->second;
}

const ServedPtr& Table::version_of(const std::string& model, const ModelView& view, const std::string& version) {
  if (version.empty()) {
    if (!view.served.empty()) return view.served.front();
    for (const auto& [number, state] : view.versions)
      if (state.state == "LOADING")
        throw Error(Code::kUnavailable, fmt::format("model '{}': it is being loaded", model), std::chrono::seconds(1));
    throw Error(Code::kUnavailable, fmt::format("Request for unknown model: '{}' has no available versions", model));
  }
  for (const ServedPtr& served : view.served)
    if (served->version == version) return served;
  if (const auto number = serving::version_of(version)) {
    const auto known = view.versions.find(*number);
    if (known != view.versions.end())
      throw Error(Code::kUnavailable,
                  fmt::format("model '{}' version {}: it is {}", model, *number,
                              known->second.state == "LOADING"     ? "being loaded"
                              : known->second.state == "UNLOADING" ? "being unloaded"
                                                                   : "not served: " + known->second.reason));
  }
  const auto label = view.labels.find(version);
  if (label == view.labels.end())
    throw Error(Code::kNotFound,
                fmt::format("Request for unknown model: '{}' version {} is not found", model, shown(version)));
  for (const ServedPtr& served : view.served)
    if (served->number == label->second) return served;
  throw Error(Code::kNotFound, fmt::format("model '{}': the label '{}' is of version {}, which is not served", model,
                                           label->first, label->second));
}

ServedPtr Table::find(const std::string& model, const std::string& version) const {
  const std::shared_lock lock(mutex_);
  return version_of(model, view(model), version);
}

std::vector<ServedPtr> Table::served(const std::string& model, const std::string& version) const {
  std::vector<ServedPtr> all;
  const std::shared_lock lock(mutex_);
  if (!version.empty()) {
    all.push_back(version_of(model, view(model), version));
  } else if (!model.empty()) {
    all = view(model).served;
  } else {
    for (const auto& [name, view] : models_) all.insert(all.end(), view.served.begin(), view.served.end());
  }
  return all;
}

std::map<std::string, ModelView> Table::read() const {
  const std::shared_lock lock(mutex_);
  return {models_.begin(), models_.end()};
}

}  // namespace sluice::serving
