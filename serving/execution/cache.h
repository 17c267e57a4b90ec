#pragma once
// Responses to requests that were there before: the least recently used go first. All bytes of a request are compared,
// not only their hash.
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "serving/core/request.h"

namespace sluice::serving {

// Thread-safe.
class ResponseCache {
 public:
  explicit ResponseCache(uint64_t bytes) : limit_(bytes) {}
  uint64_t limit() const { return limit_; }
  uint64_t bytes() const;  // of keys and responses
  size_t size() const;

  using Outputs = std::shared_ptr<const std::vector<Tensor>>;
  Outputs find(const std::string& key);
  // Nothing where it is larger than all the cache.
  void insert(const std::string& key, Outputs outputs);
  void forget(std::string_view prefix);  // all whose keys begin so

 private:
  struct Entry {
    std::string key;
    Outputs outputs;
    uint64_t bytes = 0;
  };
  // With mutex_ held.
  void move_out(std::list<Entry>::iterator entry, std::list<Entry>& to);

  const uint64_t limit_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the latest used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
  uint64_t bytes_ = 0;
};

// Everything of a request that its response depends on.
std::string cache_key(const std::string& prefix, const InferRequest& request);

}  // namespace sluice::serving
