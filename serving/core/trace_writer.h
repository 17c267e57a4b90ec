#pragma once
// The trace file: what happened to requests, as a JSON array, which every tool that reads Triton's can read, or as
// lines of OTLP.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "serving/core/options.h"
#include "serving/core/record_file.h"
#include "serving/core/trace.h"

namespace sluice::serving {

// Thread safety: everything, from any thread.
class TraceWriter {
 public:
  // Throws Error(kInvalidArgument) when the file cannot be written.
  TraceWriter(std::string path, uint32_t frequency, TraceMode mode = TraceMode::kTriton);

  // A finished request: who it was, its timestamps, where it ran. `tensors`: records of tensors, joined by ",\n".
  // `frequency`: traces of a file, 0 for all in one.
  void add(const RequestTrace& trace, const std::string& tensors, uint32_t frequency) noexcept;
  void flush();

 private:
  void open_next(uint32_t frequency);

  const std::string path_;
  const TraceMode mode_;
  std::mutex mutex_;
  std::unique_ptr<RecordFile> file_;
  uint32_t in_file_ = 0;      // traces
  uint64_t next_number_ = 0;  // of "path.<number>"
};

// One record of a tensor: its name, datatype, shape, and its values as text, the first `kTracedElements` of them.
inline constexpr size_t kTracedElements = 4096;
std::string tensor_record(uint64_t id, const char* activity, const Tensor& tensor);

}  // namespace sluice::serving
