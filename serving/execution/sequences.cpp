#include "serving/execution/sequences.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::serving {

namespace {

std::string id_of(const RequestOptions& options) {
  if (const auto* text = std::get_if<std::string>(&options.sequence_id)) return "'" + *text + "'";
  return std::to_string(std::get<uint64_t>(options.sequence_id));
}

const std::vector<api::Tensor> kFresh;

}  // namespace

// A START begins a sequence anew, behind what is left of one of the same id; an END lets nobody join it.
void Sequences::admit(const JobPtr& job, Clock::time_point now) {
  if (!job->options.in_sequence())
    throw Error(Code::kInvalidArgument, "infer: the model is stateful: sequence_id: none; every request needs one");
  const std::string id = id_of(job->options);
  const auto open = open_.find(id);
  // A request that continues an unknown sequence is refused, since the state that it counts on is not there.
  if (!job->options.sequence_start && open == open_.end())
    throw Error(Code::kInvalidArgument,
                fmt::format("infer: sequence {}: its first request must have sequence_start; it "
                            "was never begun, has ended, or was idle for too long",
                            id.substr(0, 256)));
  if (waiting_ >= limits_.waiting)
    throw Error(Code::kOverloaded,
                fmt::format("infer: {} requests of sequences wait; at most {} may", waiting_, limits_.waiting));
  uint64_t number = open == open_.end() ? 0 : open->second;
  if (job->options.sequence_start) {
    if (number != 0) {  // its own requests are answered, and then it ends
      Sequence& before = sequences_.at(number);
      before.ended = true;
      open_.erase(id);
      if (!before.busy && before.jobs.empty()) end(number);
    }
    number = ++count_;
    Sequence& fresh = sequences_[number];
    fresh.number = number;
    fresh.id = id;
    open_[id] = number;
    without_place_.push_back(number);
  }
  Sequence& sequence = sequences_.at(number);
  sequence.used = now;
  sequence.jobs.push_back(job);
  job->sequence = number;
  ++waiting_;
  if (job->options.sequence_end) {
    sequence.ended = true;
    open_.erase(id);
  }
  give_places();
  if (sequence.place && !sequence.busy) {
    sequence.busy = true;
    due_.push_back(number);
  }
}

void Sequences::give_places() {
  while (!free_.empty() && !without_place_.empty()) {
    const auto found = sequences_.find(without_place_.front());
    without_place_.pop_front();
    if (found == sequences_.end()) continue;
    found->second.place = free_.back();
    free_.pop_back();
    // A sequence is due at most once: its requests run one after the other, each from the state that the last one left.
    if (found->second.busy || found->second.jobs.empty()) continue;
    found->second.busy = true;
    due_.push_back(found->first);
  }
}

JobPtr Sequences::next() {
  while (!due_.empty()) {
    Sequence& sequence = sequences_.at(due_.front());
    due_.pop_front();
    if (sequence.jobs.empty()) {  // cancelled meanwhile
      sequence.busy = false;
      if (sequence.ended) end(sequence.number);
      continue;
    }
    JobPtr job = std::move(sequence.jobs.front());
    sequence.jobs.pop_front();
    job->place = *sequence.place;
    --waiting_;
    return job;
  }
  return nullptr;
}

const std::vector<api::Tensor>& Sequences::state(const Job& job) const {
  return job.options.sequence_start ? kFresh : sequences_.at(job.sequence).state;
}

void Sequences::finished(const Job& job, std::optional<std::vector<api::Tensor>> state, Clock::time_point now) {
  const auto found = sequences_.find(job.sequence);
  if (found == sequences_.end()) return;
  Sequence& sequence = found->second;
  if (state) sequence.state = *std::move(state);
  sequence.used = now;
  sequence.busy = false;
  if (!sequence.jobs.empty()) {
    sequence.busy = true;
    due_.push_back(sequence.number);
  } else if (sequence.ended) {
    end(sequence.number);
  }
}

void Sequences::end(uint64_t number) {
  const auto found = sequences_.find(number);
  if (found == sequences_.end()) return;
  // The place goes to the sequence that has waited for one the longest.
  if (found->second.place) free_.push_back(*found->second.place);
  const auto open = open_.find(found->second.id);
  if (open != open_.end() && open->second == number) open_.erase(open);
  sequences_.erase(found);
  give_places();
}

bool Sequences::remove(const Job& job) {
  const auto found = sequences_.find(job.sequence);
  if (found == sequences_.end()) return false;
  Sequence& sequence = found->second;
  const auto at = std::find_if(sequence.jobs.begin(), sequence.jobs.end(),
                               [&](const JobPtr& other) { return other.get() == &job; });
  if (at == sequence.jobs.end()) return false;
  sequence.jobs.erase(at);
  --waiting_;
  if (sequence.jobs.empty() && !sequence.busy && (sequence.ended || !sequence.place)) end(sequence.number);
  return true;
}

void Sequences::expire(Clock::time_point now) {
  std::vector<uint64_t> idle;
  for (const auto& [number, sequence] : sequences_)
    if (sequence.place && !sequence.busy && sequence.jobs.empty() && sequence.used + limits_.idle <= now)
      idle.push_back(number);
  for (const uint64_t number : idle) end(number);
}

Clock::time_point Sequences::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& [number, sequence] : sequences_)
    if (sequence.place && !sequence.busy && sequence.jobs.empty()) next = std::min(next, sequence.used + limits_.idle);
  return next;
}

std::vector<JobPtr> Sequences::clear() {
  std::vector<JobPtr> all;
  for (auto& [number, sequence] : sequences_) {
    all.insert(all.end(), sequence.jobs.begin(), sequence.jobs.end());
    sequence.jobs.clear();
  }
  waiting_ = 0;
  return all;
}

}  // namespace sluice::serving
