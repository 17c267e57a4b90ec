#pragma once
// The body of a `fused` op as instructions on tiles: each step's loop, and what brings its operands into the tiles that
// the loop computes on. Every step's result is rounded as if it were stored, so that a chain gives the bits of its ops.
#include <cstdint>
#include <string>
#include <vector>

#include "base/attr.h"
#include "kernels/cpu/loops/chains.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/strides/tiles.h"

namespace sluice::cpu {

// Immutable once made. Thread safety: run() may be called from several threads at once, each with its own scratch.
class FusedProgram {
 public:
  // `inputs`: dtypes. `ones`: which inputs are one element that goes with all others; empty: none. Throws
  // Error(kUnsupported) where a step has no loop.
  FusedProgram(const AttrGraph& body, const std::vector<DType>& inputs, const std::vector<bool>& ones = {});

  const std::vector<DType>& outputs() const { return outputs_; }
  // Inputs that are states of random numbers rather than elements: read whole, from `states` of run().
  const std::vector<bool>& is_state() const { return is_state_; }
  bool random() const { return random_; }
  bool heavy() const { return heavy_; }
  int64_t scratch_per_element() const { return scratch_; }  // bytes

  // The addresses of one piece of the operands. Inputs are as they are in memory, and so is what outputs become.
  struct Piece {
    const void* const* in;
    void** out;  // where to write; changed where the result lies elsewhere
    const void* const* states;
    int64_t element, n;  // the first one's number in row-major order, and how many
    char* scratch;       // of scratch_per_element() bytes times `room`, which n does not exceed
    int64_t room;
  };
  // 0, or the error of the step error / 256.
  int run(const Piece& piece) const;
  std::string error_text(int error) const;

 private:
  struct Instruction {
    enum class Kind : uint8_t { kLoop, kLoad, kStore, kDropout } kind;
    TileType tile = TileType::kFloat;  // of dropout
    int step = 0, state = 0;
    Loop loop = nullptr;
    LoadFn load = nullptr;
    StoreFn store = nullptr;
    double p = 0;
    int64_t salt = 0;
    int64_t stride = 1, most = INT64_MAX;  // of a load: from one element to the next, and how many it loads at most
    int in[kMostLinks + 1] = {-1, -1, -1, -1}, out = -1;  // places
    ChainLink link = {};                                  // of a step of floats that may be in a chain
  };
  // The places of a value: the one that memory has, and those of its conversions.
  struct Places {
    struct Made {
      LoadFn load;
      bool is_one;  // an element in place of a tile
      int place;
    };
    DType dtype;
    bool is_one = false;  // in memory
    int memory = -1;
    std::vector<Made> made = {};
  };
  class Builder;

  int num_inputs_, num_outputs_;
  std::vector<DType> outputs_;
  std::vector<bool> is_state_;
  bool random_ = false, heavy_ = false;
  std::vector<Instruction> instructions_;
  std::vector<std::string> ops_;  // of steps
  std::vector<int> results_;      // places of outputs
  std::vector<int64_t> offsets_;  // of places in scratch, per element: those after inputs and outputs
  int64_t scratch_ = 0;
};

}  // namespace sluice::cpu
