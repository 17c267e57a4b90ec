#pragma once
// Kernels that take a line along an axis after the other, each on one thread.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "kernels/cpu/strides/strided.h"
#include "kernels/kernel.h"

namespace sluice::cpu {

// The lines of operands of one shape: where each begins, and how far its elements are apart.
class Lines {
 public:
  explicit Lines(const plan::KernelQuery& q) {
    std::vector<const TensorSpec*> operands;
    for (const TensorSpec& in : q.inputs) operands.push_back(&in);
    operands.push_back(&q.outputs.at(0));
    const int dim = normalize_axis(get_attr<int64_t>(q.attrs, "dim"), operands[0]->shape.rank(), q.op.c_str());
    std::vector<Strides> strides;
    for (const TensorSpec* operand : operands) {
      steps_.push_back(operand->strides[dim]);
      sizes_.push_back(static_cast<int64_t>(dtype_size(operand->dtype)));
      strides.push_back(operand->strides);
    }
    Shape firsts = operands[0]->shape;
    length_ = firsts[dim];
    firsts[dim] = std::min<int64_t>(length_, 1);
    nest_ = std::make_unique<LoopNest>(LoopNest::in_order(firsts, strides));
  }

  int64_t count() const { return nest_->size(); }
  int64_t length() const { return length_; }
  // Whether lines lie side by side in all operands.
  bool neighbours() const {
    for (size_t k = 0; k < steps_.size(); ++k)
      if (nest_->inner_stride(static_cast<int>(k)) != 1) return false;
    return true;
  }
  int64_t step(int operand) const { return steps_[operand]; }
  // `step` elements of the operand, in bytes.
  int64_t bytes(int operand, int64_t step) const { return step * sizes_[operand]; }

  // f(line, offsets in bytes), on several threads.
  template <class F>
  void for_each(int threads, const F& f) const {
    parallel_ranges(threads, count(), std::max<int64_t>(kGrain / std::max<int64_t>(length_, 1), 1),
                    [&](int64_t begin, int64_t end) { walk(begin, end, f); });
  }
  // f(offsets in bytes, lines): up to `most` lines whose elements lie side by side in all operands, or one.
  template <class F>
  void for_each_panel(int threads, int64_t most, const F& f) const {
    const int64_t step = neighbours() ? most : 1;
    parallel_ranges(threads, count(), std::max<int64_t>(kGrain / std::max<int64_t>(length_, 1), 1),
                    [&](int64_t begin, int64_t end) {
                      nest_->for_segments(begin, end, [&](const auto& offsets, int64_t n) {
                        for (int64_t i = 0; i < n; i += step) f(places(offsets, i), std::min(step, n - i));
                      });
                    });
  }
  // The same as so many tasks of neighbouring lines, `most` of a task at a time: f(task, lines' offsets in bytes).
  template <class F>
  void for_each_group_of_tasks(int threads, int64_t tasks, size_t most, const F& f) const {
    const bool alone = count() * length_ < 2 * kGrain;
    parallel_ranges(alone ? 1 : threads, tasks, 1, [&](int64_t begin, int64_t end) {
      std::vector<std::array<int64_t, kMaxOperands>> group;
      group.reserve(most);
      for (int64_t task = begin; task < end; ++task) {
        walk(count() * task / tasks, count() * (task + 1) / tasks, [&](int64_t, const auto& at) {
          group.push_back(at);
          if (group.size() < most) return;
          f(task, group);
          group.clear();
        });
        if (!group.empty()) f(task, group);
        group.clear();
      }
    });
  }
  // One line at a time: f(task, offsets in bytes).
  template <class F>
  void for_each_of_tasks(int threads, int64_t tasks, const F& f) const {
    const bool alone = count() * length_ < 2 * kGrain;
    parallel_ranges(alone ? 1 : threads, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task)
        walk(count() * task / tasks, count() * (task + 1) / tasks, [&](int64_t, const auto& at) { f(task, at); });
    });
  }

 private:
  static constexpr int64_t kGrain = 8192;  // elements worth a thread

  template <class F>
  void walk(int64_t begin, int64_t end, const F& f) const {
    int64_t line = begin;
    nest_->for_segments(begin, end, [&](const auto& offsets, int64_t n) {
      for (int64_t i = 0; i < n; ++i, ++line) f(line, places(offsets, i));
    });
  }

  // The starts of line i of a segment in each operand, in bytes.
  std::array<int64_t, kMaxOperands> places(const std::array<int64_t, kMaxOperands>& offsets, int64_t i) const {
    std::array<int64_t, kMaxOperands> at{};
    for (int k = 0; k < static_cast<int>(steps_.size()); ++k) at[k] = bytes(k, offsets[k] + i * nest_->inner_stride(k));
    return at;
  }

  std::vector<int64_t> steps_, sizes_;
  int64_t length_ = 0;
  std::unique_ptr<LoopNest> nest_;
};

}  // namespace sluice::cpu
