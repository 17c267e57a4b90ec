#include "serving/execution/cache.h"

#include <algorithm>

namespace sluice::serving {

uint64_t ResponseCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

size_t ResponseCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

ResponseCache::Outputs ResponseCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->outputs;
}

void ResponseCache::move_out(std::list<Entry>::iterator entry, std::list<Entry>& to) {
  bytes_ -= entry->bytes;
  by_key_.erase(entry->key);
  to.splice(to.begin(), entries_, entry);
}

void ResponseCache::insert(const std::string& key, Outputs outputs) {
  constexpr uint64_t kOfEntry = 256;  // lists, maps
  uint64_t bytes = key.size() + kOfEntry;
  for (const Tensor& tensor : *outputs) bytes += tensor.bytes + tensor.shape.size() * 8 + tensor.name.size() + kOfEntry;
  if (bytes > limit_) return;
  std::list<Entry> gone;  // let go of without the lock
  const std::lock_guard lock(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) move_out(found->second, gone);
  while (bytes_ + bytes > limit_) move_out(std::prev(entries_.end()), gone);
  entries_.push_front({key, std::move(outputs), bytes});
  by_key_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
}

void ResponseCache::forget(std::string_view prefix) {
  std::list<Entry> gone;
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (entry->key.starts_with(prefix)) move_out(entry, gone);
    entry = next;
  }
}

namespace {

// With its length, so that no two lists of parts are one key.
void add(std::string& key, const void* data, size_t bytes) {
  const uint64_t length = bytes;
  key.append(reinterpret_cast<const char*>(&length), sizeof length);
  if (bytes > 0) key.append(static_cast<const char*>(data), bytes);
}
void add(std::string& key, const std::string& text) { add(key, text.data(), text.size()); }

}  // namespace

std::string cache_key(const std::string& prefix, const InferRequest& request) {
  std::string key = prefix;
  std::vector<const Tensor*> inputs;  // their order says nothing
  for (const Tensor& tensor : request.inputs) inputs.push_back(&tensor);
  std::sort(inputs.begin(), inputs.end(), [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  size_t bytes = key.size() + 64;
  for (const Tensor* tensor : inputs) bytes += tensor->bytes + tensor->name.size() + tensor->shape.size() * 8 + 64;
  key.reserve(bytes);
  for (const Tensor* tensor : inputs) {
    add(key, tensor->name);
    add(key, &tensor->datatype, sizeof tensor->datatype);
    add(key, tensor->shape.data(), tensor->shape.size() * sizeof(int64_t));
    add(key, tensor->data.get(), tensor->bytes);
  }
  add(key, "outputs");
  for (const RequestedOutput& output : request.outputs) {
    add(key, output.name);
    add(key, &output.classes, sizeof output.classes);
  }
  return key;
}

}  // namespace sluice::serving
