#include "serving/core/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "serving/core/request_log.h"
#include "serving/core/trace_writer.h"

namespace sluice::serving {

namespace {

[[noreturn]] void wrong_setting(const std::string& what) { throw Error(Code::kInvalidArgument, "trace: " + what); }

int64_t number_of(const std::string& name, const std::vector<std::string>& values, int64_t least, int64_t most) {
  int64_t number = 0;
  const std::string& text = values.front();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (values.size() != 1 || error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    wrong_setting(fmt::format("'{}' is '{}'; it must be a whole number of at least {}", name, text, least));
  return number;
}

}  // namespace

Tracing::Tracing(const TraceOptions& trace, const RequestLogOptions& log) : options_(trace) {
  set(start_, "trace_level", trace.level.empty() ? std::vector<std::string>{"OFF"} : trace.level);
  set(start_, "trace_rate", {std::to_string(trace.rate)});
  set(start_, "trace_count", {std::to_string(trace.count)});
  start_.frequency = trace.log_frequency;
  server_ = start_;
  if (!trace.file.empty()) writer_ = std::make_shared<TraceWriter>(trace.file, trace.log_frequency, trace.mode);
  if (!log.file.empty()) log_ = std::make_shared<RequestLog>(log);
  refresh();
}

Tracing::~Tracing() = default;

void Tracing::set(Settings& settings, const std::string& name, const std::vector<std::string>& values) const {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  if (name == "trace_level") {
    Level level;
    for (const std::string& value : values) {
      if (value == "TIMESTAMPS")
        level.timestamps = true;
      else if (value == "TENSORS")
        level.tensors = true;
      else if (value != "OFF" || values.size() != 1)
        wrong_setting(fmt::format("level '{}'; it must be TIMESTAMPS, TENSORS or both, or OFF alone", value));
    }
    if (level.on() && options_.file.empty())
      wrong_setting("the server was started without a trace file; start it with --trace-config file=PATH");
    settings.level = level;
  } else if (name == "trace_rate") {
    settings.rate = static_cast<uint32_t>(number_of(name, values, 1, kMost));
  } else if (name == "trace_count") {
    settings.count = number_of(name, values, -1, std::numeric_limits<int64_t>::max());
  } else if (name == "log_frequency") {
    settings.frequency = static_cast<uint32_t>(number_of(name, values, 0, kMost));
  } else if (name == "trace_file" || name == "trace_mode") {
    throw Error(Code::kUnsupported,
                fmt::format("trace: '{}' is set when the server is started, and not by clients", name));
  } else {
    wrong_setting(
        fmt::format("'{}' is no setting; there are trace_level, trace_rate, trace_count and log_frequency", name));
  }
}

inference::TraceSettingResponse Tracing::settings(const inference::TraceSettingRequest& request) {
  const std::lock_guard lock(mutex_);
  const std::string& model = request.model_name();
  Settings changed;
  if (model.empty())
    changed = server_;
  else if (const auto found = models_.find(model); found != models_.end())
    changed = found->second;
  for (const auto& [name, value] : request.settings()) {
    const std::vector<std::string> values(value.value().begin(), value.value().end());
    if (!values.empty()) {
      set(changed, name, values);
      continue;
    }
    const Settings cleared = model.empty() ? start_ : Settings{};
    if (name == "trace_level")
      changed.level = cleared.level;
    else if (name == "trace_rate")
      changed.rate = cleared.rate;
    else if (name == "trace_count")
      changed.count = cleared.count;
    else if (name == "log_frequency")
      changed.frequency = cleared.frequency;
    else if (name != "trace_file" && name != "trace_mode")
      set(changed, name, values);  // which says that there is none
  }
  if (!request.settings().empty()) {
    changed.seen = 0;
    if (model.empty())
      server_ = changed;
    else
      models_[model] = changed;
    refresh();
  }
  return told(effective(model.empty() ? Settings{} : changed));
}

Tracing::Effective Tracing::effective(const Settings& model) const {
  return {.level = model.level.value_or(*server_.level),
          .rate = model.rate.value_or(*server_.rate),
          .frequency = model.frequency.value_or(*server_.frequency),
          .count = model.count.value_or(*server_.count)};
}

inference::TraceSettingResponse Tracing::told(const Effective& settings) const {
  inference::TraceSettingResponse response;
  auto& all = *response.mutable_settings();
  if (settings.level.timestamps) all["trace_level"].add_value("TIMESTAMPS");
  if (settings.level.tensors) all["trace_level"].add_value("TENSORS");
  if (!settings.level.on()) all["trace_level"].add_value("OFF");
  all["trace_rate"].add_value(std::to_string(settings.rate));
  all["trace_count"].add_value(std::to_string(settings.count));
  all["log_frequency"].add_value(std::to_string(settings.frequency));
  all["trace_file"].add_value(options_.file.substr(options_.file.rfind('/') + 1));
  all["trace_mode"].add_value(options_.mode == TraceMode::kOpenTelemetry ? "opentelemetry" : "triton");
  return response;
}

void Tracing::refresh() {
  bool any = server_.level->on();
  for (const auto& [name, settings] : models_) any = any || (settings.level && settings.level->on());
  active_.store(any || log_ != nullptr, std::memory_order_relaxed);
}

// The level, if this request is one of those that are traced. A model that does not say a setting itself has the
// server's, and shares the counters of it.
std::optional<Tracing::Level> Tracing::sample(const std::string& model, uint32_t& frequency) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(model);
  Settings* own = found == models_.end() ? nullptr : &found->second;
  const Effective settings = effective(own == nullptr ? Settings{} : *own);
  if (!settings.level.on() || settings.count == 0) return {};
  Settings& counts = own != nullptr && own->rate ? *own : server_;
  if (++counts.seen % settings.rate != 0) return {};
  if (settings.count > 0) --*(own != nullptr && own->count ? *own : server_).count;
  frequency = settings.frequency;
  return settings.level;
}

void Tracing::choose(InferRequest& request, Respond& respond) {
  if (log_) log_->maybe_add(request);
  uint32_t frequency = 0;
  const auto level = sample(request.model, frequency);
  if (!level) return;
  auto tensors = std::make_shared<std::string>();  // written before the last who holds the trace lets go of it
  auto finish = [writer = writer_, tensors, frequency](const RequestTrace& trace) {
    writer->add(trace, *tensors, frequency);
  };
  auto trace = RequestTrace::make(next_id_.fetch_add(1), request.transport, std::move(finish));
  trace->model = request.model;
  trace->version = request.version;
  trace->request_id = request.id;
  trace->parent = request.trace_parent;
  trace->with_steps = level->timestamps;
  if (level->timestamps) {
    trace->stamp(Stamp::kRecvStart, request.received);
    if (request.read != Clock::time_point{}) trace->stamp(Stamp::kRecvEnd, request.read);
  }
  trace->stamp(Stamp::kRequestStart);
  const auto note = [tensors, id = trace->id()](const char* activity, const Tensor& tensor) {
    *tensors += (tensors->empty() ? "" : ",\n") + tensor_record(id, activity, tensor);
  };
  if (level->tensors)
    for (const Tensor& input : request.inputs) note("TENSOR_QUEUE_INPUT", input);
  request.trace = trace;
  respond = [trace = std::move(trace), note, with_tensors = level->tensors, then = std::move(respond)](
                InferResponse response, bool last) {
    if (with_tensors)
      for (const Tensor& output : response.outputs) note("TENSOR_BACKEND_OUTPUT", output);
    if (last) trace->stamp(Stamp::kInferResponseComplete);
    response.trace = trace;
    then(std::move(response), last);
  };
}

void Tracing::flush() {
  if (writer_) writer_->flush();
  if (log_) log_->flush();
}

}  // namespace sluice::serving
