#include "kernels/cpu/rows/flat_program.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace sluice::cpu {

FlatProgram::FlatProgram(const char* op, const AttrGraph& body, const std::vector<DType>& inputs,
                         std::vector<bool> is_number)
    : program_(body, inputs), is_number_(std::move(is_number)) {
  for (DType dtype : inputs) sizes_.push_back(static_cast<int64_t>(dtype_size(dtype)));
  result_size_ = static_cast<int64_t>(dtype_size(program_.outputs().at(0)));
  const auto numbers = static_cast<size_t>(std::count(is_number_.begin(), is_number_.end(), true));
  SLUICE_CHECK_KIND(
      kUnsupported,
      inputs.size() <= kMostFusedInputs && numbers <= kMostNumbers && !program_.random() &&
          program_.scratch_per_element() * kTile <= kScratch,
      "{}: a body of {} inputs, {} of them one element; must be at most {} and {}, few values, and not random", op,
      inputs.size(), numbers, kMostFusedInputs, kMostNumbers);
}

void FlatProgram::begin(const void* const* inputs, Space& space) const {
  size_t number = 0;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    space.inputs[i] = inputs[i];
    if (!is_number_[i]) continue;
    raw_load(static_cast<size_t>(sizes_[i]))(inputs[i], 0, space.repeated[number], kTile);
    space.inputs[i] = space.repeated[number++];
  }
}

void FlatProgram::make(Space& space, int64_t at, int64_t n, void* to) const {
  const void* in[kMostFusedInputs] = {};
  for (size_t i = 0; i < sizes_.size(); ++i)
    in[i] = static_cast<const char*>(space.inputs[i]) + (is_number_[i] ? 0 : at * sizes_[i]);
  void* out[1] = {to};
  const int error = program_.run({in, out, nullptr, at, n, space.scratch, kTile});
  SLUICE_CHECK_KIND(kRuntime, error == 0, "{}", program_.error_text(error));
  if (out[0] != to) std::memcpy(to, out[0], static_cast<size_t>(n * result_size_));
}

}  // namespace sluice::cpu
