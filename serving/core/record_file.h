#pragma once
// A file that is written behind the back of those who have something to record.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace sluice::serving {

// Invariants: the file is whole after every record: what has been written, then the tail. At most `kWaiting` records
// wait; more are lost, and counted. Thread safety: everything, from any thread.
class RecordFile {
 public:
  struct Format {
    std::string head, separator, tail;  // "[\n", ",\n", "\n]\n" make a JSON array
  };
  static constexpr size_t kWaiting = 1024;

  // Makes the file anew. Throws Error(kInvalidArgument) when it cannot be written.
  RecordFile(const std::string& path, Format format, uint64_t max_bytes = UINT64_MAX);
  ~RecordFile();  // writes what waits
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Never blocks for a disk, never throws.
  void add(std::string record) noexcept;
  void flush();  // waits until what was added before has been written
  uint64_t lost() const;

 private:
  void run();
  void append(const std::string& record);

  const Format format_;
  const uint64_t max_bytes_;
  int fd_ = -1;
  uint64_t end_ = 0;  // where the tail begins; of the writing thread
  bool any_ = false;  // of the writing thread
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  bool busy_ = false, stop_ = false;
  uint64_t lost_ = 0;
  std::thread thread_;
};

}  // namespace sluice::serving
