#include "tensor/call_cache.h"

#include <bit>
#include <functional>
#include <string>
#include <utility>

namespace sluice {
namespace {

class Hash {
 public:
  void add(uint64_t v) { state_ = (std::rotl(state_, 23) ^ v) * 0x9e3779b97f4a7c15ull; }
  void add(const Shape& shape) {
    add(static_cast<uint64_t>(shape.rank()));
    for (int64_t d : shape) add(static_cast<uint64_t>(d));
  }
  uint64_t value() const { return state_ ^ (state_ >> 29); }

 private:
  uint64_t state_ = 0x243f6a8885a308d3ull;
};

struct AttrHash {
  Hash& hash;
  void operator()(NoAttr) const { hash.add(uint64_t{0}); }
  void operator()(bool v) const { hash.add(uint64_t{v}); }
  void operator()(int64_t v) const { hash.add(static_cast<uint64_t>(v)); }
  void operator()(double v) const { hash.add(std::bit_cast<uint64_t>(v)); }
  void operator()(const std::string& v) const { hash.add(std::hash<std::string>()(v)); }
  void operator()(DType v) const { hash.add(static_cast<uint64_t>(v)); }
  void operator()(const TensorType& v) const {
    (*this)(v.dtype);
    hash.add(v.shape);
  }
  template <class T>
  void operator()(const std::vector<T>& v) const {
    hash.add(v.size());
    for (const auto& item : v) (*this)(static_cast<const T&>(item));
  }
  void operator()(const AttrGraph& v) const { (*this)(attr_str(v)); }
};

}  // namespace

uint64_t CallKey::hash() const {
  Hash hash;
  hash.add(reinterpret_cast<uint64_t>(op));
  for (const Attr& attr : *attrs) {
    hash.add(attr.index());
    std::visit(AttrHash{hash}, attr);
  }
  for (const TensorSpec* input : inputs) {
    if (!input) {
      hash.add(uint64_t{1});
      continue;
    }
    hash.add(static_cast<uint64_t>(input->dtype) + 2);
    hash.add(input->shape);
    hash.add(input->strides);
  }
  hash.add(device.kind.hash() ^ static_cast<uint32_t>(device.index));
  hash.add(static_cast<uint64_t>(threads));
  return hash.value();
}

bool CallPlan::matches(const CallKey& key) const {
  if (op != key.op || threads != key.threads || device != key.device || kernels != key.kernels ||
      inputs.size() != key.inputs.size())
    return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (key.inputs[i] ? !present[i] || !(inputs[i] == *key.inputs[i]) : present[i]) return false;
  return attrs == *key.attrs;
}

std::shared_ptr<const CallPlan> CallCache::find(const CallKey& key, uint64_t hash) {
  const std::lock_guard lock(mutex_);
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end() || !found->second->plan->matches(key)) return nullptr;
  if (found->second != order_.begin()) order_.splice(order_.begin(), order_, found->second);
  return found->second->plan;
}

void CallCache::insert(uint64_t hash, std::shared_ptr<const CallPlan> plan) {
  const std::lock_guard lock(mutex_);
  const auto found = by_hash_.find(hash);
  if (found != by_hash_.end()) {
    order_.erase(found->second);
    by_hash_.erase(found);
  }
  order_.push_front({hash, std::move(plan)});
  by_hash_[hash] = order_.begin();
  if (order_.size() <= capacity_) return;
  by_hash_.erase(order_.back().hash);
  order_.pop_back();
}

size_t CallCache::size() const {
  const std::lock_guard lock(mutex_);
  return order_.size();
}

}  // namespace sluice
