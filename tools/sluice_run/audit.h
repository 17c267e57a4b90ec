#pragma once
// A record of a run says enough to run again: what went in, what it ran on, the order of its messages, and digests of
// what came out. So somebody else can find out whether that was the same run, bit for bit.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "include/sluice/plan.h"
#include "include/sluice/tensor.h"
#include "tools/sluice_run/values.h"

namespace sluice::run {

// Texts by section and name, such as {"machine": {"processor": "AMD EPYC"}}.
using Facts = std::map<std::string, std::map<std::string, std::string>>;

// The digest of all results of a run so far: SHA-256 of the one before and of that of each tensor's bytes, as text.
class ResultDigest {
 public:
  static constexpr int64_t kMost = 1000;  // digests that are kept of a run, and one for its end

  explicit ResultDigest(int64_t steps) : every_((steps + kMost - 1) / kMost) {}
  void add(const std::vector<api::Tensor>& results);
  int64_t every() const { return every_; }
  const std::string& text() const { return digest_; }
  // Behind every so many steps, and behind the last step.
  std::vector<std::string> kept() const;

 private:
  const int64_t every_;
  int64_t steps_ = 0;
  std::string digest_;
  std::vector<std::string> kept_;
};

// The command that ran, without what it shows.
struct RunCommand {
  std::string bundle;
  InputArguments input;
  int64_t steps = 1;
  int cores = 0;
  std::optional<uint64_t> shuffle;
};

struct RunRecord {
  RunCommand command;
  Facts facts;
  int64_t every = 1;
  std::vector<std::string> digests;
  std::map<std::string, std::string> outputs;  // digests of the last step's
  std::string order, order_digest;             // the file of the order of messages, beside the record
};

// The contents of a key's file. Throws kIo; kValue where it is empty.
std::string key_of(const std::string& path);
// SHA-256 of a file. Throws kIo.
std::string digest_of_file(const std::string& path);
// The sections "build", "libraries" and "machine" of this process, and "files": digests of those of the bundle, and of
// `code`, the shared libraries that are loaded besides. Throws kIo.
Facts facts_of(const std::string& bundle, const std::vector<std::string>& code);
// Digests of tensors by the names of their ports.
std::map<std::string, std::string> digests_of(const std::vector<api::Port>& ports,
                                              const std::vector<api::Tensor>& tensors);
// A line for each fact that is not the same, "machine: processor: 'A'; 'B' was recorded".
std::vector<std::string> differences(const Facts& now, const Facts& recorded);
// A line for the first results that are not the same, and one for each output whose last value is not.
std::vector<std::string> differences(const ResultDigest& now, const std::map<std::string, std::string>& outputs,
                                     const RunRecord& recorded);

// `key`: the content of a file that only who may sign has; empty: the record is sealed against damage alone.
// Throws kIo.
void write_record(const RunRecord& record, const std::string& path, std::string_view key);
// Throws kIo; kValue for a file that is cut, foreign, changed, or signed by another key.
RunRecord read_record(const std::string& path, std::string_view key);

}  // namespace sluice::run
