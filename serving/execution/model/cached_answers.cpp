#include "serving/execution/model/cached_answers.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "serving/core/buffers.h"

namespace sluice::serving {
namespace {

std::string new_prefix(const inference::ModelConfig& config) {
  static std::atomic<uint64_t> count{0};
  return config.response_cache().enable() ? fmt::format("{}#", count++) : "";
}

}  // namespace

CachedAnswers::CachedAnswers(const inference::ModelConfig& config, ResponseCache& cache)
    : cache_(cache), prefix_(new_prefix(config)) {}

CachedAnswers::~CachedAnswers() {
  if (on()) cache_.forget(prefix_);
}

void CachedAnswers::check(const std::string& where) const {
  if (on() && cache_.limit() == 0)
    throw Error(Code::kInvalidArgument, where + ": response_cache: the server has none; give it bytes for one");
}

ResponseCache::Outputs CachedAnswers::find(Job& job) {
  uint64_t bytes = 0;
  for (const Tensor& input : job.request.inputs) bytes += input.bytes;
  Held own(job.request.memory, bytes);
  std::string key = cache_key(prefix_, job.request);
  ResponseCache::Outputs outputs = cache_.find(key);
  if (outputs != nullptr) return outputs;
  job.key = std::move(key);
  job.own = std::move(own);
  return nullptr;
}

// A copy is made where the memory would otherwise stay with the cache.
void CachedAnswers::keep(const Job& job, const std::vector<Tensor>& outputs, bool shares) {
  if (job.key.empty()) return;
  auto kept = std::make_shared<std::vector<Tensor>>(outputs);
  for (Tensor& tensor : *kept) {
    if (!shares || tensor.bytes == 0) continue;
    std::shared_ptr<void> copy = BufferPool(0).take(tensor.bytes);
    std::memcpy(copy.get(), tensor.data.get(), tensor.bytes);
    tensor.data = std::move(copy);
  }
  cache_.insert(job.key, std::move(kept));
}

}  // namespace sluice::serving
