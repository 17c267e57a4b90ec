#include "kernels/c/casts.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace sluice::c {
namespace {

using plan::BaseKind;
using plan::View;

// The memory of a view: a buffer, or a variable.
using Place = std::pair<bool, int>;

class Reader {
 public:
  explicit Reader(const plan::Plan& plan) : made_{plan, {}} {
    for (const int actor : plan.certificate)
      for (const plan::Instr& instr : plan.actors[static_cast<size_t>(actor)].program)
        if (instr.kind == plan::InstrKind::kRun) order_.push_back(instr.index);
  }

  CastsRead run() {
    for (size_t at = 0; at < order_.size(); ++at) look(at);
    drop();
    return std::move(made_);
  }

 private:
  plan::Plan& plan() { return made_.plan; }
  plan::Kernel& kernel(size_t at) { return plan().kernels[static_cast<size_t>(order_[at])]; }

  Place place_of(const View& view) {
    if (view.base == BaseKind::kVariable) return {true, view.index};
    if (view.base == BaseKind::kBuffer) return {false, view.index};
    return {false, plan().registers[static_cast<size_t>(view.index)].slots.at(0)};
  }

  // Every small integer is a float, exactly.
  static bool is_free(const plan::Kernel& cast) {
    if (cast.op != "cast" || cast.outputs.size() != 1) return false;
    const TensorSpec &from = cast.inputs.at(0).spec, &to = cast.outputs[0].spec;
    const bool small = from.dtype == DType::kInt8 || from.dtype == DType::kUInt8 || from.dtype == DType::kInt16;
    return small && to.dtype == DType::kFloat32 && is_contiguous(from.shape, from.strides) &&
           is_contiguous(to.shape, to.strides);
  }

  bool is_port(const Place& place) {
    const auto at = [&](const View& view) { return place_of(view) == place; };
    return std::any_of(plan().outputs.begin(), plan().outputs.end(),
                       [&](const plan::Output& output) { return at(output.view); });
  }

  bool writes(size_t at, const Place& place) {
    const auto& outputs = kernel(at).outputs;
    return std::any_of(outputs.begin(), outputs.end(), [&](const View& view) { return place_of(view) == place; });
  }

  // Lets readers of the cast at a place of the order read its operand, where nothing else is written there meanwhile.
  void look(size_t at) {
    if (!is_free(kernel(at))) return;
    const View from = kernel(at).inputs[0], to = kernel(at).outputs[0];
    const Place source = place_of(from), result = place_of(to);
    if (result.first || is_port(result)) return;
    std::vector<std::pair<size_t, size_t>> readers;
    for (size_t other = 0; other < order_.size(); ++other) {
      if (other != at && writes(other, result)) return;
      const auto& inputs = kernel(other).inputs;
      for (size_t i = 0; i < inputs.size(); ++i)
        if (!plan::is_absent(inputs[i]) && place_of(inputs[i]) == result) readers.emplace_back(other, i);
    }
    for (const auto& [other, input] : readers) {
      if (other < at || kernel(other).inputs[input].spec.dtype != DType::kFloat32) return;
      for (size_t between = at + 1; between <= other; ++between)
        if (writes(between, source)) return;
    }
    for (const auto& [other, input] : readers) {
      View& view = kernel(other).inputs[input];
      const uint64_t elements = (view.offset - to.offset) / dtype_size(DType::kFloat32);
      TensorSpec spec = view.spec;
      spec.dtype = from.spec.dtype;
      made_.computed[{order_[other], input}] = DType::kFloat32;
      view = from;
      view.offset = from.offset + elements * dtype_size(spec.dtype);
      view.spec = spec;
    }
    dropped_.push_back(order_[at]);
  }

  void drop() {
    for (plan::Actor& actor : plan().actors)
      std::erase_if(actor.program, [&](const plan::Instr& instr) {
        return instr.kind == plan::InstrKind::kRun &&
               std::find(dropped_.begin(), dropped_.end(), instr.index) != dropped_.end();
      });
  }

  CastsRead made_;
  std::vector<int> order_, dropped_;  // kernels
};

}  // namespace

CastsRead read_casts(const plan::Plan& plan) { return Reader(plan).run(); }

}  // namespace sluice::c
