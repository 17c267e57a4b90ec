#pragma once
// The body of a `fused_rows` op in phases: what is computed of each element before the first reductions, between those
// and the next ones, and so on. A phase is one pass over a row; what a later one reads again is kept.
#include <optional>
#include <vector>

#include "kernels/cpu/fused_program.h"
#include "kernels/cpu/row_fold.h"

namespace sluice::cpu {

// Immutable once made.
class RowProgram {
 public:
  static constexpr int kMostValues = 64;

  // kRow: one for each row. Of what is for each element: kKept: read in a later phase than it is made in, so kept for
  // the whole row; kRun: folded alone, so kept for a run; kPassing: in tiles alone.
  enum class Home : uint8_t { kInput, kState, kRow, kOutput, kKept, kRun, kPassing };
  struct Value {
    DType dtype;
    bool row = false;  // also of an input or an output
    Home home = Home::kPassing;
    int index = -1;            // of the input, or of the output
    int made = -1, read = -1;  // phases: in which a step makes it, and in which it is read for the last time
    bool read_again = false;   // in a later phase than it is made in, or by a reduction
    bool in_elements = false;  // read by steps of elements
    int64_t size() const { return static_cast<int64_t>(dtype_size(dtype)); }
  };
  struct Steps {
    FusedProgram program;
    std::vector<int> in, out;  // values
  };
  struct Reduction {
    std::unique_ptr<const RowFold> fold;
    int from, to;  // values
  };
  // The steps of rows run first, and what reductions give is there in the phase behind them.
  struct Phase {
    std::optional<Steps> rows, elements;
    std::vector<Reduction> reductions;
  };

  // `row`: of each input, whether it has one element for a row. Throws Error(kUnsupported) where a step has no loop.
  RowProgram(const AttrGraph& body, const std::vector<DType>& inputs, const std::vector<bool>& row);

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Phase>& phases() const { return phases_; }
  bool random() const { return random_; }
  bool heavy() const { return heavy_; }
  int64_t scratch_per_element() const { return scratch_; }  // the most of a phase
  std::string error_text(int error) const;                  // of error_in()
  static int error_in(int phase, bool rows, int error) { return (phase * 2 + rows) << 16 | error; }

 private:
  class Builder;

  std::vector<Value> values_;
  std::vector<Phase> phases_;
  bool random_ = false, heavy_ = false;
  int64_t scratch_ = 0;
};

// Of inputs of a body: the states of random steps, which are no elements.
std::vector<bool> states_of(const AttrGraph& body);

}  // namespace sluice::cpu
