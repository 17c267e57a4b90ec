// loop: a body of kernels, run turn by turn on memory that is laid out once.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/control/loop_memory.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/strides/strided_copy.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

using Base = LoopPlace::Base;

class Loop final : public PreparedKernel {
 public:
  Loop(LoopLayout layout, int threads) : layout_(std::move(layout)), threads_(threads) {
    for (const LoopCall& call : layout_.calls) {
      held_bytes_ += call.kernel->held_bytes();
      for (const std::vector<LoopPlace>* places : {&call.inputs, &call.outputs}) {
        for (const LoopPlace& place : *places) {
          if (place.row > 0) moving_.push_back(pointers_.size());
          pointers_.push_back(place);
        }
      }
    }
    for (const LoopCopy& copy : layout_.before) before_.push_back(copy_of(copy));
    for (const LoopCopy& copy : layout_.after) after_.push_back(copy_of(copy));
    size_t most = 0;
    for (const LoopCall& call : layout_.calls) {
      has_branches_ |= call.branches;
      most = std::max(most, call.read.size() + call.written.size());
    }
    table_ = layout_.workspace_bytes;
    voids_ = table_ + align_up(pointers_.size() * sizeof(void*), 64);
    workspace_bytes_ = voids_ + (has_branches_ ? align_up(layout_.values + most, 64) : 0);
  }

  void run(const KernelArgs& args) const override {
    for (size_t i = 0; i < layout_.state_bytes.size(); ++i)
      if (args.inputs[i] != args.outputs[i] && layout_.state_bytes[i] > 0)
        std::memcpy(args.outputs[i], args.inputs[i], layout_.state_bytes[i]);
    void** const table = reinterpret_cast<void**>(at_offset(args.workspace, table_));
    if (!goes_on(args, 0)) return;
    for (size_t i = 0; i < pointers_.size(); ++i) table[i] = at(args, pointers_[i], 0);
    for (int64_t turn = 0; goes_on(args, turn); ++turn) {
      const int64_t row = layout_.reverse ? layout_.length - 1 - turn : turn;
      try {
        run_turn(args, table, row);
      } catch (const Error& error) {
        throw Error(error.kind(), fmt::format("turn {} of a loop: {}", turn, error.what()));
      }
    }
  }

 private:
  static StridedCopy copy_of(const LoopCopy& copy) {
    return {copy.as.shape, copy.as.strides, contiguous_strides(copy.as.shape), dtype_size(copy.as.dtype)};
  }

  bool goes_on(const KernelArgs& args, int64_t turn) const {
    return layout_.length < 0 ? *static_cast<const bool*>(args.outputs[0]) : turn < layout_.length;
  }

  static void* at(const KernelArgs& args, const LoopPlace& place, int64_t row) {
    const size_t index = static_cast<size_t>(place.index);
    const uint64_t offset = place.offset + static_cast<uint64_t>(row) * place.row;
    switch (place.base) {
      case Base::kNone: return nullptr;
      // Kernels read their inputs through pointers to const.
      case Base::kInput: return at_offset(const_cast<void*>(args.inputs[index]), offset);
      case Base::kOutput: return at_offset(args.outputs[index], offset);
      case Base::kWorkspace: return at_offset(args.workspace, offset);
    }
    return nullptr;
  }

  void run_turn(const KernelArgs& args, void** table, int64_t row) const {
    for (const size_t i : moving_) table[i] = at(args, pointers_[i], row);
    run_copies(args, layout_.before, before_, row);
    bool* const voids = has_branches_ ? reinterpret_cast<bool*>(at_offset(args.workspace, voids_)) : nullptr;
    if (has_branches_) std::fill_n(voids, layout_.values, false);
    void** next = table;
    for (const LoopCall& call : layout_.calls) {
      const void* const* const inputs = next;
      void** const outputs = next + call.inputs.size();
      next = outputs + call.outputs.size();
      KernelArgs own{.inputs = inputs,
                     .outputs = outputs,
                     .workspace = at(args, call.workspace, 0),
                     .stream = args.stream,
                     .context = args.context};
      if (has_branches_)
        run_unless_void(call, own, voids);
      else
        call.kernel->run(own);
    }
    if (has_branches_ &&
        std::any_of(layout_.given.begin(), layout_.given.end(), [&](int value) { return voids[value]; }))
      fail(ErrorKind::kRuntime, "a result of the body belongs to a branch that was not taken; join it with esac");
    run_copies(args, layout_.after, after_, row);
  }

  // A loop does here as an actor does (ADR 24): a call that reads a void value is left out, and its results are void.
  void run_unless_void(const LoopCall& call, KernelArgs& own, bool* voids) const {
    const auto is_void = [&](int value) { return value >= 0 && voids[value]; };
    if (!call.branches) {
      if (std::none_of(call.read.begin(), call.read.end(), is_void)) return call.kernel->run(own);
      for (const int value : call.written) voids[value] = true;
      return;
    }
    bool* const in = voids + layout_.values;
    bool* const out = std::transform(call.read.begin(), call.read.end(), in, is_void);
    std::fill_n(out, call.written.size(), false);
    own.void_inputs = in;
    own.void_outputs = out;
    call.kernel->run(own);
    for (size_t i = 0; i < call.written.size(); ++i) voids[call.written[i]] = out[i];
  }

  void run_copies(const KernelArgs& args, const std::vector<LoopCopy>& copies, const std::vector<StridedCopy>& how,
                  int64_t row) const {
    for (size_t i = 0; i < copies.size(); ++i)
      how[i].run(at(args, copies[i].from, row), at(args, copies[i].to, row), threads_);
  }

  const LoopLayout layout_;
  const int threads_;
  std::vector<LoopPlace> pointers_;  // of all calls: inputs, then outputs
  std::vector<size_t> moving_;       // those that each turn has others of
  std::vector<StridedCopy> before_, after_;
  uint64_t table_ = 0, voids_ = 0;  // where in the workspace the pointers are, and whether values are void
  bool has_branches_ = false;
};

std::unique_ptr<PreparedKernel> prepare_loop(const plan::KernelQuery& query, const PrepareContext& context) {
  return std::make_unique<Loop>(lay_out_loop(query, context), context.threads);
}

}  // namespace

void add_loop_kernel(KernelTable& table) { table.add(DeviceKind::kCpu, {.op = "loop", .prepare = prepare_loop}); }

}  // namespace sluice::cpu
