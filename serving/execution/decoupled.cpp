#include "serving/execution/decoupled.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <mutex>

#include "serving/core/buffers.h"
#include "serving/execution/parameters.h"
#include "serving/execution/response_times.h"

namespace sluice::serving {

namespace {

constexpr int64_t kMostResponses = 65536;

// The config's words about the steps of a request.
struct Loop {
  std::vector<std::pair<std::string, std::string>> feedback;  // an output, and the input that it becomes
  std::string stop;                                           // an output of one whole number; "": none
  int64_t stop_at = 0;
  int64_t most = 1024;
  std::vector<std::string> outputs;  // of who does not say: those that are not fed back, or all

  bool is_fed_back(const std::string& output) const {
    return std::any_of(feedback.begin(), feedback.end(), [&](const auto& pair) { return pair.first == output; });
  }
};

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

template <class Ports>
auto port_of(const Ports& ports, const std::string& name) {
  const auto found = std::find_if(ports.begin(), ports.end(), [&](const auto& port) { return port.name() == name; });
  return found == ports.end() ? nullptr : &*found;
}

Loop loop_of(const inference::ModelConfig& config) {
  const std::string here = "model '" + config.name() + "': parameters.";
  Loop loop;
  for (const auto& [output, input] : parameter_pairs(config, "feedback", "next:x,state:state")) {
    const auto* const from = port_of(config.output(), output);
    const auto* const to = port_of(config.input(), input);
    if (from == nullptr) wrong(here + "feedback: the model has no output '" + output + "'");
    if (to == nullptr) wrong(here + "feedback: the model has no input '" + input + "'");
    if (from->data_type() != to->data_type())
      wrong(here + "feedback: output '" + output + "' has another datatype than input '" + input + "'");
    loop.feedback.emplace_back(output, input);
  }
  if (loop.feedback.empty())
    wrong(here +
          "feedback: it is missing; a decoupled model says which outputs are inputs of its next step, as in "
          "'window:tokens'");
  if (const std::string stop = parameter_text(config, "stop"); !stop.empty()) {
    const size_t colon = stop.find(':');
    const auto number =
        colon == std::string::npos ? std::nullopt : whole_number(std::string_view(stop).substr(colon + 1));
    loop.stop = stop.substr(0, colon);
    if (!number || port_of(config.output(), loop.stop) == nullptr)
      wrong(here + "stop: '" + stop + "'; must be an output and a whole number, as in 'token:0'");
    loop.stop_at = *number;
  }
  if (const std::string most = parameter_text(config, "max_responses"); !most.empty()) {
    const auto number = whole_number(most);
    if (!number || *number < 1 || *number > kMostResponses)
      wrong(fmt::format("{}max_responses: '{}'; must be a number of 1 to {}", here, most, kMostResponses));
    loop.most = *number;
  }
  for (const bool all : {false, true}) {
    if (!loop.outputs.empty()) break;
    for (const auto& output : config.output())
      if (all || !loop.is_fed_back(output.name())) loop.outputs.push_back(output.name());
  }
  if (config.response_cache().enable()) wrong(here + "feedback: a decoupled model has no response cache");
  if (config.has_sequence_batching()) wrong(here + "feedback: a decoupled model has no sequences; its steps are one");
  return loop;
}

Tensor copy_of(const Tensor& tensor, const MemoryPtr& memory) {
  Tensor copy = tensor;
  copy.data = BufferPool(0).take(tensor.bytes, memory);
  if (tensor.bytes > 0) std::memcpy(copy.data.get(), tensor.data.get(), tensor.bytes);
  return copy;
}

// Counts of responses, by their number within their request.
class ResponseCounts {
 public:
  ResponseCounts(const inference::ModelConfig& config, const LatencyOptions& options)
      : first_(first_response_of(config, options)) {}

  // A response: so long its step took, with the queue, and so long it took to give it.
  void succeeded(int64_t number, Clock::duration infer, Clock::duration output) {
    const std::lock_guard lock(mutex_);
    inference::InferResponseStatistics& stats = responses_[number];
    add(*stats.mutable_compute_infer(), infer);
    add(*stats.mutable_compute_output(), output);
    add(*stats.mutable_success(), infer + output);
  }
  void failed(int64_t number, Code code, Clock::duration duration) {
    const std::lock_guard lock(mutex_);
    inference::InferResponseStatistics& stats = responses_[number];
    add(code == Code::kCancelled ? *stats.mutable_cancel() : *stats.mutable_fail(), duration);
  }
  void first_response(Clock::duration duration) {
    const std::lock_guard lock(mutex_);
    if (first_) serving::add(*first_, duration);
  }
  void fill(inference::ModelStatistics& statistics) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, stats] : responses_) {
      inference::InferResponseStatistics& to = (*statistics.mutable_response_stats())[std::to_string(number)];
      to = stats;
      // Clients expect all of them to be there.
      for (auto* duration : {to.mutable_compute_infer(), to.mutable_compute_output(), to.mutable_success(),
                             to.mutable_fail(), to.mutable_empty_response(), to.mutable_cancel()})
        static_cast<void>(duration);
    }
  }
  std::optional<LatencyHistogram> first() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  static void add(inference::StatisticDuration& to, Clock::duration duration) {
    to.set_count(to.count() + 1);
    to.set_ns(to.ns() + static_cast<uint64_t>(std::max<int64_t>(
                            0, std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count())));
  }
  mutable std::mutex mutex_;
  std::map<int64_t, inference::InferResponseStatistics> responses_;
  std::optional<LatencyHistogram> first_;
};

// One request: a step after another. Only the thread that gives a step's answer changes the state below, and
// answers come one at a time.
class Generation final : public RequestHandle, public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::shared_ptr<Executor> steps, std::shared_ptr<const Loop> loop, std::shared_ptr<ResponseCounts> counts,
             InferRequest request, Respond respond)
      : steps_(std::move(steps)),
        loop_(std::move(loop)),
        counts_(std::move(counts)),
        request_(std::move(request)),
        respond_(std::move(respond)) {}

  void start() {
    try {
      prepare();
    } catch (const Error& error) {
      return fail(error);
    }
    step();
  }

  void cancel() override {
    std::shared_ptr<RequestHandle> running;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      running = running_;
    }
    if (running != nullptr) running->cancel();
  }

 private:
  void prepare() {
    left_ = loop_->most;
    if (const auto found = request_.parameters.find("max_tokens"); found != request_.parameters.end()) {
      const auto* const number = std::get_if<int64_t>(&found->second);
      const auto* const natural = std::get_if<uint64_t>(&found->second);
      const uint64_t asked = number != nullptr && *number > 0 ? static_cast<uint64_t>(*number)
                             : natural != nullptr             ? *natural
                                                              : 0;
      if (asked < 1 || asked > static_cast<uint64_t>(loop_->most))
        wrong(fmt::format("infer: parameter 'max_tokens' must be a number of 1 to {}", loop_->most));
      left_ = static_cast<int64_t>(asked);
      request_.parameters.erase(found);
    }
    if (request_.outputs.empty())
      for (const std::string& name : loop_->outputs) request_.outputs.push_back({name, 0, {}});
    asked_ = request_.outputs.size();
    for (const RequestedOutput& output : request_.outputs) {
      if (output.shared) wrong("infer: output '" + output.name + "': responses in parts do not go to shared memory");
      if (output.classes > 0 && (loop_->is_fed_back(output.name) || output.name == loop_->stop))
        wrong("infer: output '" + output.name + "': it is needed for the next step, so there are no classes of it");
    }
    const auto also = [&](const std::string& name) {
      const auto is = [&](const RequestedOutput& output) { return output.name == name; };
      if (std::none_of(request_.outputs.begin(), request_.outputs.end(), is)) request_.outputs.push_back({name, 0, {}});
    };
    for (const auto& [output, input] : loop_->feedback) also(output);
    if (!loop_->stop.empty()) also(loop_->stop);
  }

  // The memory of a request's inputs becomes the step's, so those that stay are copied.
  void step() {
    InferRequest next = request_;
    try {
      for (Tensor& input : next.inputs) input = copy_of(input, request_.memory);
    } catch (const Error& error) {
      return fail(error);
    }
    next.trace = std::exchange(request_.trace, nullptr);  // of the first step
    begun_ = Clock::now();
    const int64_t number = left_;
    std::shared_ptr<RequestHandle> handle =
        steps_->infer(std::move(next),
                      [self = shared_from_this()](InferResponse response, bool) { self->take(std::move(response)); });
    bool cancelled = false;
    {
      const std::lock_guard lock(mutex_);
      if (number < running_number_) {  // of two steps the later counts: the numbers fall
        running_ = handle;
        running_number_ = number;
      }
      cancelled = cancelled_;
    }
    if (cancelled && handle != nullptr) handle->cancel();
  }

  void take(InferResponse response) {
    const auto computed = Clock::now();
    if (response.error) return finish(std::move(response));
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_) response.error = Error(Code::kCancelled, "infer: the request was cancelled");
    }
    if (response.error) return finish(std::move(response));
    const bool last = left_ == 1 || stops(response);
    try {
      if (!last) feed_back(response);
    } catch (const Error& error) {
      return fail(error);
    }
    response.outputs.resize(std::min(asked_, response.outputs.size()));
    response.parameters["triton_final_response"] = last;
    if (number_ == 0) counts_->first_response(computed - request_.received);
    // Counted before it is given, so that who has it finds it counted; what giving takes counts with the next one.
    counts_->succeeded(number_, computed - begun_, Clock::now() - computed);
    ++number_;
    if (last) return finish(std::move(response));
    respond_(std::move(response), false);
    --left_;
    step();
  }

  bool stops(const InferResponse& response) const {
    for (const Tensor& output : response.outputs) {
      if (output.name != loop_->stop) continue;
      const bool wide = output.datatype == DataType::TYPE_INT64;
      if (!wide && output.datatype != DataType::TYPE_INT32) return false;
      if (output.bytes != (wide ? sizeof(int64_t) : sizeof(int32_t))) return false;  // several rows do not end as one
      return (wide ? *static_cast<const int64_t*>(output.data.get())
                   : *static_cast<const int32_t*>(output.data.get())) == loop_->stop_at;
    }
    return false;
  }

  void feed_back(const InferResponse& response) {
    for (const auto& [output, input] : loop_->feedback) {
      const auto from = std::find_if(response.outputs.begin(), response.outputs.end(),
                                     [&, name = output](const Tensor& tensor) { return tensor.name == name; });
      if (from == response.outputs.end()) continue;
      Tensor next = copy_of(*from, request_.memory);
      next.name = input;
      const auto to = std::find_if(request_.inputs.begin(), request_.inputs.end(),
                                   [&, name = input](const Tensor& tensor) { return tensor.name == name; });
      if (to == request_.inputs.end())
        request_.inputs.push_back(std::move(next));
      else
        *to = std::move(next);
    }
  }

  void fail(const Error& error) {
    InferResponse response;
    response.model = request_.model;
    response.version = request_.version;
    response.id = request_.id;
    response.error = error;
    finish(std::move(response));
  }
  void finish(InferResponse response) {
    if (response.error) counts_->failed(number_, response.error->code(), Clock::now() - begun_);
    const Respond respond = std::move(respond_);
    respond(std::move(response), true);
  }

  const std::shared_ptr<Executor> steps_;
  const std::shared_ptr<const Loop> loop_;
  const std::shared_ptr<ResponseCounts> counts_;
  InferRequest request_;  // the next step
  Respond respond_;
  size_t asked_ = 0;                        // outputs, the first
  int64_t left_ = 0;                        // responses
  int64_t number_ = 0;                      // of the next one
  Clock::time_point begun_ = Clock::now();  // its step
  std::mutex mutex_;
  bool cancelled_ = false;
  int64_t running_number_ = INT64_MAX;
  std::shared_ptr<RequestHandle> running_;
};

class Decoupled final : public Executor {
 public:
  Decoupled(std::shared_ptr<Executor> steps, const inference::ModelConfig& config, const LatencyOptions& options)
      : steps_(std::move(steps)),
        loop_(std::make_shared<const Loop>(loop_of(config))),
        counts_(std::make_shared<ResponseCounts>(config, options)) {}
  std::shared_ptr<RequestHandle> infer(InferRequest request, Respond respond) override {
    const auto made = std::make_shared<Generation>(steps_, loop_, counts_, std::move(request), std::move(respond));
    made->start();
    return made;
  }
  inference::ModelStatistics statistics() const override {
    inference::ModelStatistics statistics = steps_->statistics();
    counts_->fill(statistics);
    return statistics;
  }
  Latencies latencies() const override {
    Latencies latencies = steps_->latencies();
    latencies.first_response = counts_->first();
    return latencies;
  }
  std::map<std::string, uint64_t> failures() const override { return steps_->failures(); }
  void refused(Code code, Clock::time_point received) override { steps_->refused(code, received); }
  size_t pending() const override { return steps_->pending(); }
  bool ready() const override { return steps_->ready(); }
  uint64_t memory_bytes() const override { return steps_->memory_bytes(); }
  bool drain(std::chrono::milliseconds timeout) override { return steps_->drain(timeout); }

 private:
  const std::shared_ptr<Executor> steps_;
  const std::shared_ptr<const Loop> loop_;
  const std::shared_ptr<ResponseCounts> counts_;
};

}  // namespace

void check_decoupled(const inference::ModelConfig& config) { static_cast<void>(loop_of(config)); }

std::shared_ptr<Executor> make_decoupled(std::shared_ptr<Executor> steps, const inference::ModelConfig& config,
                                         const LatencyOptions& options) {
  return std::make_shared<Decoupled>(std::move(steps), config, options);
}

}  // namespace sluice::serving
