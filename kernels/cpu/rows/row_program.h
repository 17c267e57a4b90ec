#pragma once
// The body of a `fused_rows` op in phases: what is computed of each element before the first reductions, between those
// and the next ones, and so on. A phase is one pass over a row; what a later one reads again is kept.
#include <optional>
#include <vector>

#include "kernels/cpu/rows/fused_program.h"
#include "kernels/cpu/rows/row_fold.h"

namespace sluice::cpu {

// Immutable once made.
class RowProgram {
 public:
  static constexpr int kMostValues = 64;

  // The home of a value. kRow: there is one for each row. A value of each element is kKept for the whole row if it is
  // read in a later phase than it is made in, kRun for a run if it is folded alone, and else kPassing, in tiles alone.
  enum class Home : uint8_t { kInput, kState, kRow, kOutput, kKept, kRun, kPassing };
  struct Value {
    Value(DType t, bool is_row = false, Home h = Home::kPassing, int i = -1)
        : dtype(t), row(is_row), home(h), index(i), bytes(static_cast<int64_t>(dtype_size(t))) {}
    DType dtype;
    bool row = false;  // also of an input or an output
    Home home = Home::kPassing;
    int index = -1;            // of the input, or of the output
    int made = -1, read = -1;  // phases: in which a step makes it, and in which it is read for the last time
    bool read_again = false;   // in a later phase than it is made in, or by a reduction
    bool folded = false;       // by a reduction
    // A result whose memory a kept value may use until it is written, as the last of its phase; it is in the cache
    // then.
    int lender = -1;
    bool in_elements = false;  // read by steps of elements
    int64_t bytes;
    int64_t size() const { return bytes; }  // of an element
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

  // `row`: of each input, whether it has one element for a row. `alone`: steps of elements are run on one row at a
  // time, so that they take its values as they are; else these are spread. Throws Error(kUnsupported) where a step has
  // no loop.
  RowProgram(const AttrGraph& body, const std::vector<DType>& inputs, const std::vector<bool>& row, bool alone);

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Phase>& phases() const { return phases_; }
  bool alone() const { return alone_; }
  bool random() const { return random_; }
  bool heavy() const { return heavy_; }
  int64_t scratch_per_element() const { return scratch_; }  // the most of a phase
  std::string error_text(int error) const;                  // of error_in()
  static int error_in(int phase, bool rows, int error) { return (phase * 2 + rows) << 16 | error; }

 private:
  class Builder;

  std::vector<Value> values_;
  std::vector<Phase> phases_;
  bool alone_ = false, random_ = false, heavy_ = false;
  int64_t scratch_ = 0;
};

// Tells which inputs of a body are the states of random steps, which are no elements.
std::vector<bool> states_of(const AttrGraph& body);

}  // namespace sluice::cpu
