#include "serving/execution/scheduling.h"

#include <fmt/format.h>

#include <algorithm>

#include "serving/execution/batcher.h"
#include "serving/execution/queue.h"

namespace sluice::serving {

constexpr int kMostInstances = 256;

int instances_of(const inference::ModelConfig& config) {
  const std::string where = "model '" + config.name() + "': instance_group: ";
  int64_t count = 0;
  for (const inference::ModelInstanceGroup& group : config.instance_group()) {
    if (group.kind() == inference::ModelInstanceGroup::KIND_GPU || group.gpus_size() > 0)
      throw Error(Code::kUnsupported,
                  where + "KIND_GPU: a bundle's plan says itself which devices it runs on; use KIND_MODEL");
    if (group.count() < 0)
      throw Error(Code::kInvalidArgument, fmt::format("{}count: {}; must be at least 1", where, group.count()));
    count += std::max(group.count(), 1);
  }
  if (count > kMostInstances)
    throw Error(Code::kInvalidArgument, fmt::format("{}{} instances; at most {}", where, count, kMostInstances));
  return static_cast<int>(std::max<int64_t>(count, 1));
}

inference::ModelConfig batching_of(const inference::ModelConfig& config) {
  inference::ModelConfig batching = config;
  if (!config.has_sequence_batching()) return batching;
  const inference::ModelSequenceBatching::StrategyOldest oldest = config.sequence_batching().oldest();
  batching.clear_sequence_batching();
  if (!config.sequence_batching().has_oldest() || config.max_batch_size() == 0) return batching;
  inference::ModelDynamicBatching& dynamic = *batching.mutable_dynamic_batching();
  *dynamic.mutable_preferred_batch_size() = oldest.preferred_batch_size();
  dynamic.set_max_queue_delay_microseconds(oldest.max_queue_delay_microseconds());
  dynamic.set_preserve_ordering(oldest.preserve_ordering());
  return batching;
}

Scheduling scheduling_of(const inference::ModelConfig& config, uint32_t max_queue_size) {
  const inference::ModelConfig batching = batching_of(config);
  const RequestQueue queue(batching, max_queue_size);
  const Batcher checked(batching, INT64_MAX);
  const inference::ModelDynamicBatching& dynamic = batching.dynamic_batching();
  Scheduling made;
  for (const auto& [level, policy] : queue.policies())
    made.queues.push_back({level, queue.limit(level), policy.default_timeout_microseconds(),
                           policy.timeout_action() == inference::ModelQueuePolicy::DELAY});
  made.merges = batching.has_dynamic_batching();
  made.most_rows = std::max(config.max_batch_size(), 1);
  made.preferred.assign(dynamic.preferred_batch_size().begin(), dynamic.preferred_batch_size().end());
  std::sort(made.preferred.begin(), made.preferred.end());
  made.delay_us = dynamic.max_queue_delay_microseconds();
  made.ordered = dynamic.preserve_ordering();
  return made;
}

}  // namespace sluice::serving
