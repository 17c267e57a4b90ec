#include "serving/core/trace_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "serving/core/json_string.h"
#include "serving/core/log.h"
#include "serving/core/otlp.h"

namespace sluice::serving {

namespace {

const char* kind_name(api::TraceEvent::Kind kind) {
  switch (kind) {
    case api::TraceEvent::Kind::kFiring: return "firing";
    case api::TraceEvent::Kind::kKernel: return "kernel";
    case api::TraceEvent::Kind::kWait: return "wait";
    case api::TraceEvent::Kind::kLeftOut: return "left out";
  }
  return "";
}

const std::string& name_at(const std::vector<std::string>& names, int index) {
  return names.at(static_cast<size_t>(index));
}

const char* name_of(Stamp stamp, Transport transport) {
  const bool http = transport == Transport::kHttp, grpc = transport == Transport::kGrpc;
  switch (stamp) {
    case Stamp::kRecvStart: return http ? "HTTP_RECV_START" : grpc ? "GRPC_WAITREAD_START" : "RECV_START";
    case Stamp::kRecvEnd: return http ? "HTTP_RECV_END" : grpc ? "GRPC_WAITREAD_END" : "RECV_END";
    case Stamp::kRequestStart: return "REQUEST_START";
    case Stamp::kQueueStart: return "QUEUE_START";
    case Stamp::kComputeStart: return "COMPUTE_START";
    case Stamp::kComputeInputEnd: return "COMPUTE_INPUT_END";
    case Stamp::kComputeOutputStart: return "COMPUTE_OUTPUT_START";
    case Stamp::kComputeEnd: return "COMPUTE_END";
    case Stamp::kInferResponseComplete: return "INFER_RESPONSE_COMPLETE";
    case Stamp::kRequestEnd: return "REQUEST_END";
    case Stamp::kSendStart: return http ? "HTTP_SEND_START" : grpc ? "GRPC_SEND_START" : "SEND_START";
    case Stamp::kSendEnd: return http ? "HTTP_SEND_END" : grpc ? "GRPC_SEND_END" : "SEND_END";
  }
  return "";
}

// Each event with its names: readers need no plan.
std::string step_record(const StepTrace& step) {
  std::string events;
  for (const api::TraceEvent& e : step.events) {
    const api::Trace::Plan& plan = step.plans->at(static_cast<size_t>(e.plan));
    const bool of_kernel = e.kind == api::TraceEvent::Kind::kKernel || e.kind == api::TraceEvent::Kind::kLeftOut;
    const std::string kernel =
        of_kernel ? fmt::format(R"("kernel":{},"kernels":{},)", json_string(name_at(plan.kernels, e.kernel)), e.kernels)
                  : "";
    fmt::format_to(std::back_inserter(events),
                   R"({}{{"kind":"{}","plan":{},"stream":{},"actor":{},{}"begin_ns":{},"end_ns":{}}})",
                   events.empty() ? "" : ",\n", kind_name(e.kind), e.plan, json_string(name_at(plan.streams, e.stream)),
                   json_string(name_at(plan.actors, e.actor)), kernel, e.begin_ns, e.end_ns);
  }
  return fmt::format(R"({{"id":{},"ids":[{}],"instance":{},"number":{},"plans":{},"events":[{}]}})", step.ids.front(),
                     fmt::join(step.ids, ","), step.instance, step.number,
                     step.plans == nullptr ? 0 : step.plans->size(), events);
}

std::string record_of(const RequestTrace& trace) {
  std::string text = fmt::format(R"({{"id":{},"model_name":{},"model_version":{},"request_id":{}}})", trace.id(),
                                 json_string(trace.model), json_string(trace.version), json_string(trace.request_id));
  std::vector<std::pair<int64_t, const char*>> stamps;
  for (int i = 0; i < kStamps; ++i) {
    const auto stamp = static_cast<Stamp>(i);
    if (const int64_t at = trace.at_ns(stamp); at != 0) stamps.emplace_back(at, name_of(stamp, trace.transport()));
  }
  std::stable_sort(stamps.begin(), stamps.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string list;
  for (const auto& [at, name] : stamps)
    list += fmt::format(R"({}{{"name":"{}","ns":{}}})", list.empty() ? "" : ",", name, at);
  text += fmt::format(",\n{{\"id\":{},\"timestamps\":[{}]}}", trace.id(), list);
  if (trace.step() >= 0)
    text += fmt::format(",\n{{\"id\":{},\"instance\":{},\"step\":{}}}", trace.id(), trace.instance(), trace.step());
  for (const auto& step : trace.steps())
    if (step->ids.front() == trace.id()) text += ",\n" + step_record(*step);  // once, with the ids of all
  return text;
}

template <class T>
std::string numbers(const Tensor& tensor) {
  const size_t n = std::min(tensor.bytes / sizeof(T), kTracedElements);
  std::string text;
  for (size_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(tensor.data.get()) + i * sizeof(T), sizeof(T));
    fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ",", value);
  }
  return text;
}

// 16-bit floats, as their numbers.
std::string halves(const Tensor& tensor, bool bfloat16) {
  const size_t n = std::min(tensor.bytes / 2, kTracedElements);
  std::string text;
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(tensor.data.get()) + i * 2, 2);
    float value = std::bit_cast<float>(uint32_t{bits} << 16u);
    if (!bfloat16) {
      const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
      value = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
              : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                              : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
      if ((bits & 0x8000u) != 0) value = -value;
    }
    fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ",", value);
  }
  return text;
}

std::string strings(const Tensor& tensor) {
  const char* at = static_cast<const char*>(tensor.data.get());
  size_t left = tensor.bytes;
  std::string text;
  for (size_t i = 0; i < kTracedElements && left >= 4; ++i) {
    uint32_t length = 0;
    std::memcpy(&length, at, 4);
    if (length > left - 4) break;
    text += (i == 0 ? "" : ",");
    text.append(at + 4, length);
    at += 4 + size_t{length};
    left -= 4 + size_t{length};
  }
  return text;
}

std::string values_of(const Tensor& tensor) {
  switch (tensor.datatype) {
    case DataType::TYPE_BOOL:
    case DataType::TYPE_UINT8: return numbers<uint8_t>(tensor);
    case DataType::TYPE_UINT16: return numbers<uint16_t>(tensor);
    case DataType::TYPE_UINT32: return numbers<uint32_t>(tensor);
    case DataType::TYPE_UINT64: return numbers<uint64_t>(tensor);
    case DataType::TYPE_INT8: return numbers<int8_t>(tensor);
    case DataType::TYPE_INT16: return numbers<int16_t>(tensor);
    case DataType::TYPE_INT32: return numbers<int32_t>(tensor);
    case DataType::TYPE_INT64: return numbers<int64_t>(tensor);
    case DataType::TYPE_FP32: return numbers<float>(tensor);
    case DataType::TYPE_FP64: return numbers<double>(tensor);
    case DataType::TYPE_FP16: return halves(tensor, false);
    case DataType::TYPE_BF16: return halves(tensor, true);
    case DataType::TYPE_STRING: return strings(tensor);
    default: return "";
  }
}

}  // namespace

TraceWriter::TraceWriter(std::string path, uint32_t frequency, TraceMode mode) : path_(std::move(path)), mode_(mode) {
  open_next(frequency);
}

void TraceWriter::open_next(uint32_t frequency) {
  const std::string path = frequency == 0 ? path_ : fmt::format("{}.{}", path_, next_number_++);
  file_.reset();  // writes what waits
  const bool lines = mode_ == TraceMode::kOpenTelemetry;
  file_ = std::make_unique<RecordFile>(
      path, lines ? RecordFile::Format{"", "\n", "\n"} : RecordFile::Format{"[\n", ",\n", "\n]\n"});
  in_file_ = 0;
}

void TraceWriter::add(const RequestTrace& trace, const std::string& tensors, uint32_t frequency) noexcept try {
  std::string record = mode_ == TraceMode::kOpenTelemetry ? otlp_record(trace)
                                                          : record_of(trace) + (tensors.empty() ? "" : ",\n") + tensors;
  const std::lock_guard lock(mutex_);
  if (frequency > 0 && in_file_ >= frequency) open_next(frequency);
  ++in_file_;
  if (file_) file_->add(std::move(record));
} catch (const std::exception& e) {  // a trace that cannot be written must not fail the request
  log_error(fmt::format("trace: a record is lost: {}", e.what()));
}

void TraceWriter::flush() {
  const std::lock_guard lock(mutex_);
  if (file_) file_->flush();
}

std::string tensor_record(uint64_t id, const char* activity, const Tensor& tensor) {
  return fmt::format(R"({{"id":{},"activity":"{}","tensor":{{"name":{},"data":{},"shape":"{}","dtype":"{}"}}}})", id,
                     activity, json_string(tensor.name), json_string(values_of(tensor)), fmt::join(tensor.shape, ","),
                     datatype_name(tensor.datatype));
}

}  // namespace sluice::serving
