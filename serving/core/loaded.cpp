#include "serving/core/loaded.h"

#include <fmt/format.h>

#include <map>

namespace sluice::serving {

std::string failure_of(const std::string& model, const std::string& reason) {
  return reason.find(model) != std::string::npos ? reason : fmt::format("model '{}': {}", model, reason);
}

Loaded look(const Server& server) {
  struct Model {
    std::string versions, reason;
    bool failed = false;
  };
  std::map<std::string, Model> models;
  Loaded loaded;
  const bool ready = server.ready();  // before the index: what is in it then is as new
  bool loading = false;
  const auto index = server.index(false);
  for (const auto& row : index.models()) {
    Model& model = models[row.name()];
    loading = loading || row.state() == "LOADING";
    if (row.state() == "READY") model.versions += " " + row.version();
    if (row.state() == "UNAVAILABLE" && !row.reason().empty() && row.reason() != "not loaded" &&
        row.reason() != "unloaded") {
      model.failed = true;
      model.reason = row.reason();
    }
  }
  for (const auto& [name, model] : models) {
    if (!model.versions.empty())
      loaded.ready += (loaded.ready.empty() ? "" : ", ") + name + model.versions;
    else if (model.failed)
      loaded.failures.push_back(failure_of(name, model.reason));
  }
  loaded.done = !loading && (ready || !loaded.failures.empty());
  return loaded;
}

}  // namespace sluice::serving
