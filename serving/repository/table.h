#pragma once
// Says who serves which model, for requests: read by all threads, changed by the actors of the models.
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "serving/core/executor.h"

namespace sluice::serving {

// A version that takes requests. Whoever holds it may start one; when nobody does any more, `left` is called.
struct Served {
  ~Served() {
    executor = nullptr;
    if (left) left();
  }
  int64_t number = 0;
  std::string version;
  std::string bundle;
  inference::ModelConfig config;
  std::shared_ptr<Executor> executor;
  std::function<void()> left;
};
using ServedPtr = std::shared_ptr<const Served>;

// The state of a version, for the index.
struct VersionState {
  std::string state, reason;
};

struct ModelView {
  std::vector<ServedPtr> served;  // newest first
  std::map<std::string, int64_t> labels;
  std::map<int64_t, VersionState> versions;
  std::string state, reason;  // of a model without versions; "" state: see them
};

// Thread safety: everything, from any thread.
class Table {
 public:
  void set(const std::string& model, ModelView view);
  void remove(const std::string& model);
  void clear();

  // "" version: the newest. Throws kNotFound, and kUnavailable where none is served.
  ServedPtr find(const std::string& model, const std::string& version) const;
  // All; of one model; of one version.
  std::vector<ServedPtr> served(const std::string& model, const std::string& version) const;
  std::map<std::string, ModelView> read() const;

 private:
  const ModelView& view(const std::string& model) const;
  static const ServedPtr& version_of(const std::string& model, const ModelView& view, const std::string& version);
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, ModelView> models_;
};

}  // namespace sluice::serving
