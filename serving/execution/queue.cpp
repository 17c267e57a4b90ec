#include "serving/execution/queue.h"

#include <algorithm>

namespace sluice::serving {

namespace {

constexpr uint64_t kMostLevels = 1024;

[[noreturn]] void wrong_queue(const std::string& what) {
  throw Error(Code::kInvalidArgument, "config: dynamic_batching: " + what);
}

}  // namespace

RequestQueue::RequestQueue(const inference::ModelConfig& config, uint32_t most) : most_(std::max<uint32_t>(most, 1)) {
  const inference::ModelDynamicBatching& batching = config.dynamic_batching();
  const uint64_t levels = batching.priority_levels();
  if (levels > kMostLevels)
    wrong_queue("priority_levels: " + std::to_string(levels) + "; at most " + std::to_string(kMostLevels) +
                " are kept");
  if (levels == 0) {
    if (batching.default_priority_level() != 0) wrong_queue("default_priority_level needs priority_levels");
    if (!batching.priority_queue_policy().empty()) wrong_queue("priority_queue_policy needs priority_levels");
    any_level_ = true;
    inference::ModelQueuePolicy policy = batching.default_queue_policy();
    // If a model has no policy, requests say themselves how long they wait.
    if (!config.has_dynamic_batching()) policy.set_allow_timeout_override(true);
    levels_[0].policy = policy;
    return;
  }
  default_level_ = batching.default_priority_level();
  if (default_level_ < 1 || default_level_ > levels)
    wrong_queue("default_priority_level: " + std::to_string(default_level_) + "; must be of 1 to priority_levels, " +
                std::to_string(levels));
  for (uint64_t level = 1; level <= levels; ++level) levels_[level].policy = batching.default_queue_policy();
  for (const auto& [level, policy] : batching.priority_queue_policy()) {
    if (level < 1 || level > levels)
      wrong_queue("priority_queue_policy: " + std::to_string(level) + "; must be of 1 to priority_levels, " +
                  std::to_string(levels));
    levels_[level].policy = policy;
  }
}

uint64_t RequestQueue::level_of(const RequestOptions& options) const {
  if (any_level_) return 0;
  const uint64_t level = options.priority == 0 ? default_level_ : options.priority;
  if (level > levels_.size())
    throw Error(Code::kInvalidArgument, "infer: parameter 'priority': " + std::to_string(level) +
                                            "; the model has levels 1 to " + std::to_string(levels_.size()));
  return level;
}

size_t RequestQueue::limit(uint64_t level) const {
  const uint32_t limit = levels_.at(level).policy.max_queue_size();
  return limit == 0 ? most_ : limit;
}

std::map<uint64_t, inference::ModelQueuePolicy> RequestQueue::policies() const {
  std::map<uint64_t, inference::ModelQueuePolicy> policies;
  for (const auto& [at, level] : levels_) policies[at] = level.policy;
  return policies;
}

size_t RequestQueue::waiting(uint64_t level) const { return levels_.at(level).size(); }

// A client may shorten the model's time limit, but not extend it.
bool RequestQueue::push(JobPtr job) {
  const uint64_t at = level_of(job->options);
  Level& level = levels_.at(at);
  if (level.size() >= limit(at)) return false;
  uint64_t timeout_us = level.policy.default_timeout_microseconds();
  const auto asked = static_cast<uint64_t>(job->options.timeout.count());
  if (level.policy.allow_timeout_override() && asked > 0 && (timeout_us == 0 || asked < timeout_us)) timeout_us = asked;
  constexpr uint64_t kYearUs = 365ull * 24 * 3600 * 1000000;
  if (timeout_us > 0) job->deadline = job->queued + std::chrono::microseconds(std::min(timeout_us, kYearUs));
  count(*job, 1);
  level.fresh.push_back(std::move(job));
  return true;
}

void RequestQueue::visit(const std::function<bool(const JobPtr& job)>& visit) const {
  for (const auto& [at, level] : levels_)
    for (const auto* part : {&level.fresh, &level.delayed})
      for (const JobPtr& job : *part)
        if (!visit(job)) return;
}

JobPtr RequestQueue::front() const {
  JobPtr first;
  visit([&](const JobPtr& job) {
    first = job;
    return false;
  });
  return first;
}

// Levels come in the order of their priority. Within a level, requests in time come before those that were delayed, in
// the order of their arrival.
JobPtr RequestQueue::pop() {
  for (auto& [at, level] : levels_) {
    for (auto* part : {&level.fresh, &level.delayed}) {
      if (part->empty()) continue;
      JobPtr job = std::move(part->front());
      part->pop_front();
      count(*job, -1);
      return job;
    }
  }
  return nullptr;
}

bool RequestQueue::remove(const Job& job) {
  Level& level = levels_.at(level_of(job.options));
  for (auto* part : {&level.fresh, &level.delayed}) {
    const auto found =
        std::find_if(part->begin(), part->end(), [&](const JobPtr& other) { return other.get() == &job; });
    if (found == part->end()) continue;
    count(job, -1);
    part->erase(found);
    return true;
  }
  return false;
}

// A request whose time is over is refused, or, if the model's policy says so, waits behind all others of its level
// without a limit.
std::vector<JobPtr> RequestQueue::expire(Clock::time_point now) {
  std::vector<JobPtr> refused;
  for (auto& [at, level] : levels_) {
    const bool delays = level.policy.timeout_action() == inference::ModelQueuePolicy::DELAY;
    std::deque<JobPtr> left;
    for (JobPtr& job : level.fresh) {
      if (job->deadline > now) {
        left.push_back(std::move(job));
      } else if (delays) {
        level.delayed.push_back(std::move(job));
      } else {
        count(*job, -1);
        refused.push_back(std::move(job));
      }
    }
    level.fresh = std::move(left);
  }
  return refused;
}

Clock::time_point RequestQueue::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& [at, level] : levels_)
    for (const JobPtr& job : level.fresh) next = std::min(next, job->deadline);
  return next;
}

std::vector<JobPtr> RequestQueue::clear() {
  std::vector<JobPtr> all;
  while (JobPtr job = pop()) all.push_back(std::move(job));
  return all;
}

}  // namespace sluice::serving
