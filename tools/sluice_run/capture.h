#pragma once
// Work of a session as a folder that runs without its program: the bundle as it was before the first step, the inputs
// of each step, and a digest of the results of each.
//   bundle                    a bundle, a folder or a tar archive of one
//   steps/0.safetensors, ...  the inputs of a step, "0", "1", ... in the plan's order
//   capture.json              how many steps there are, their digests, and who has written it
// sluice.utils.capture of Python writes the same.
#include <cstdint>
#include <string>
#include <vector>

#include "include/sluice/plan.h"
#include "include/sluice/tensor.h"

namespace sluice::run {

struct Capture {
  std::string folder;
  std::vector<std::string> digests;  // by step
  std::string version;               // of Sluice, which has written it
  std::string bundle() const { return folder + "/bundle"; }
  int64_t steps() const { return static_cast<int64_t>(digests.size()); }
};

bool is_capture(const std::string& path);
// Throws kIo; kValue for one that was not ended, is cut, or was written by a newer Sluice.
Capture read_capture(const std::string& folder);
// The inputs of a step. Throws kIo; kValue naming the file and what it lacks.
std::vector<api::Tensor> inputs_of(const Capture& capture, const std::vector<api::Port>& ports, int64_t step);
// The digest of a step's results, as captures have it.
std::string digest_of_step(const std::vector<api::Tensor>& results);

// Writes a capture. What is there already is refused: kValue. Throws kIo.
class CaptureWriter {
 public:
  CaptureWriter(const std::string& folder, const std::string& bundle);
  // Before the step runs, since it may take the memory of its inputs.
  void begin_step(const std::vector<api::Tensor>& inputs);
  void end_step(const std::vector<api::Tensor>& results) { capture_.digests.push_back(digest_of_step(results)); }
  // Until then it is no capture.
  void end() const;

 private:
  Capture capture_;
};

}  // namespace sluice::run
