#pragma once
// The extensions that change what the server tells of itself: its log, and traces of requests.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "inference.pb.h"
#include "serving/core/options.h"
#include "serving/core/trace.h"

namespace sluice::serving {

// Changes what `request` names, all of it or nothing, and tells what holds then: log_info, log_warning, log_error,
// log_verbose_level, log_format. log_file cannot be changed by clients. Throws kInvalidArgument.
inference::LogSettingsResponse apply_log_settings(const inference::LogSettingsRequest& request);

class RecordFile;
class TraceWriter;
class RequestLog;

// Chooses the requests that are traced or kept for audit, by settings of the server and of its models.
// Thread safety: everything, from any thread. While nothing is chosen, begin() costs a relaxed load.
class Tracing {
 public:
  // Throws kInvalidArgument for options that are wrong, and for files that cannot be written.
  Tracing(const TraceOptions& trace, const RequestLogOptions& log);
  ~Tracing();

  // Does the same as apply_log_settings, for the model that `request` names, or the server: trace_level, trace_rate,
  // trace_count, log_frequency; an empty value clears, back to the server's, or to what it was started with. trace_file
  // and trace_mode cannot be changed. Whether there is such a model is the caller's affair.
  inference::TraceSettingResponse settings(const inference::TraceSettingRequest& request);

  // To be called once for each request whose model and version are known, before it is run. A request that is chosen
  // gets request.trace, and `respond` notes the response.
  void begin(InferRequest& request, Respond& respond) {
    if (active_.load(std::memory_order_relaxed)) [[unlikely]]
      choose(request, respond);
  }
  void flush();  // waits until all that is over has been written

 private:
  struct Level {
    bool timestamps = false, tensors = false;
    bool on() const { return timestamps || tensors; }
  };
  // The settings of a model or the server; what it does not say, the next one up does.
  struct Settings {
    std::optional<Level> level;
    std::optional<uint32_t> rate;
    std::optional<int64_t> count;
    std::optional<uint32_t> frequency;
    uint64_t seen = 0;
  };
  struct Effective {
    Level level;
    uint32_t rate = 1000, frequency = 0;
    int64_t count = -1;
  };
  void choose(InferRequest& request, Respond& respond);
  std::optional<Level> sample(const std::string& model, uint32_t& frequency);
  Effective effective(const Settings& model) const;
  void set(Settings& settings, const std::string& name, const std::vector<std::string>& values) const;
  inference::TraceSettingResponse told(const Effective& settings) const;
  void refresh();

  const TraceOptions options_;
  mutable std::mutex mutex_;
  Settings start_, server_;
  std::map<std::string, Settings> models_;
  std::atomic<bool> active_{false};
  std::atomic<uint64_t> next_id_{1};
  std::shared_ptr<TraceWriter> writer_;
  std::shared_ptr<RequestLog> log_;
};

}  // namespace sluice::serving
