#include "kernels/c/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"

namespace sluice::c {
namespace {

using plan::BaseKind;
using plan::View;

constexpr int64_t kFewest = 16;  // elements: fewer are not worth another type

// The elements as int8, if each of them is one.
std::optional<std::string> as_int8(const float* values, int64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  for (int64_t i = 0; i < count; ++i) {
    const float v = values[i];
    if (!(std::abs(v) <= 127) || v != std::trunc(v) || (v == 0 && std::signbit(v))) return std::nullopt;
    bytes[static_cast<size_t>(i)] = static_cast<char>(static_cast<int8_t>(v));
  }
  return bytes;
}

template <class Function>
void for_views(plan::Plan& plan, const Function& function) {
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    for (size_t i = 0; i < plan.kernels[k].inputs.size(); ++i) function(plan.kernels[k].inputs[i], std::pair(k, i));
    for (View& view : plan.kernels[k].outputs) function(view, std::nullopt);
  }
  for (plan::Output& output : plan.outputs) function(output.view, std::nullopt);
}

class Narrower {
 public:
  Narrower(CastsRead& read, const Contents& contents)
      : plan_(read.plan), computed_(read.computed), contents_(contents), written_(plan::written_variables(read.plan)) {}

  std::map<std::string, std::string> run() {
    find();
    const std::vector<int> places = kept_places();
    for_views(plan_, [&](View& view, std::optional<std::pair<size_t, size_t>> input) {
      if (view.base != BaseKind::kVariable) return;
      const size_t variable = static_cast<size_t>(view.index);
      if (narrow_.contains(variable)) {
        computed_[{static_cast<int>(input->first), input->second}] = DType::kFloat32;
        view.offset /= dtype_size(DType::kFloat32);
        view.spec.dtype = DType::kInt8;
      }
      view.index = places[variable];
    });
    for (const size_t variable : narrow_) plan_.variables[variable].spec.dtype = DType::kInt8;
    std::vector<plan::Variable> kept;
    for (size_t v = 0; v < plan_.variables.size(); ++v)
      if (!twins_.contains(v)) kept.push_back(std::move(plan_.variables[v]));
    plan_.variables = std::move(kept);
    return std::move(made_);
  }

 private:
  void find() {
    std::set<size_t> other;  // variables that are read otherwise than as the floats they are
    for_views(plan_, [&](const View& view, std::optional<std::pair<size_t, size_t>> input) {
      if (view.base == BaseKind::kVariable && (!input || view.spec.dtype != DType::kFloat32 || view.packed >= 0))
        other.insert(static_cast<size_t>(view.index));
    });
    for (size_t v = 0; v < plan_.variables.size(); ++v) {
      const plan::Variable& variable = plan_.variables[v];
      const int64_t count = numel(variable.spec.shape);
      if (written_[v] || other.contains(v) || variable.spec.dtype != DType::kFloat32 || count < kFewest) continue;
      if (!is_contiguous(variable.spec.shape, variable.spec.strides)) continue;
      const auto* const data = static_cast<const float*>(contents_(variable.name));
      std::optional<std::string> bytes = data == nullptr ? std::nullopt : as_int8(data, count);
      if (!bytes) continue;
      narrow_.insert(v);
      if (const std::optional<size_t> twin = twin_of(*bytes))
        twins_[v] = *twin;
      else
        made_[variable.name] = std::move(*bytes);
    }
  }

  // A constant that has these bytes.
  std::optional<size_t> twin_of(const std::string& bytes) const {
    for (size_t v = 0; v < plan_.variables.size(); ++v) {
      const plan::Variable& variable = plan_.variables[v];
      if (written_[v] || variable.spec.dtype != DType::kInt8 || variable.spec.extent_bytes() != bytes.size()) continue;
      const void* const data = contents_(variable.name);
      if (data != nullptr && std::memcmp(data, bytes.data(), bytes.size()) == 0) return v;
    }
    return std::nullopt;
  }

  // The numbers of variables when those that have become others are gone.
  std::vector<int> kept_places() const {
    std::vector<int> places(plan_.variables.size());
    int next = 0;
    for (size_t v = 0; v < places.size(); ++v)
      if (!twins_.contains(v)) places[v] = next++;
    for (const auto& [variable, twin] : twins_) places[variable] = places[twin];
    return places;
  }

  plan::Plan& plan_;
  std::map<std::pair<int, size_t>, DType>& computed_;
  const Contents& contents_;
  const std::vector<bool> written_;
  std::set<size_t> narrow_;
  std::map<size_t, size_t> twins_;
  std::map<std::string, std::string> made_;
};

// A kernel's run, by its actor and its place in that one's program.
struct Run {
  int actor = 0;
  size_t place = 0;
  int kernel = 0;
};

std::vector<Run> runs_of(const plan::Plan& plan) {
  std::vector<Run> runs;
  for (const int actor : plan.certificate) {
    const auto& program = plan.actors[static_cast<size_t>(actor)].program;
    for (size_t place = 0; place < program.size(); ++place)
      if (program[place].kind == plan::InstrKind::kRun) runs.push_back({actor, place, program[place].index});
  }
  return runs;
}

bool joins_variables(const plan::Kernel& kernel) {
  const auto is_variable = [](const View& view) { return view.base == BaseKind::kVariable; };
  return kernel.op == "concat" && kernel.outputs[0].base == BaseKind::kBuffer &&
         std::all_of(kernel.inputs.begin(), kernel.inputs.end(), is_variable);
}

bool writes_any(const plan::Kernel& kernel, const std::vector<View>& variables) {
  return std::any_of(kernel.outputs.begin(), kernel.outputs.end(), [&](const View& written) {
    return written.base == BaseKind::kVariable &&
           std::any_of(variables.begin(), variables.end(),
                       [&](const View& view) { return view.index == written.index; });
  });
}

// True if the kernel reads a value that lies in this buffer, or writes there.
bool touches(const plan::Plan& plan, const plan::Kernel& kernel, int buffer, bool outputs) {
  const auto at = [&](const View& view) {
    if (view.base == BaseKind::kBuffer) return view.index == buffer;
    return view.base == BaseKind::kRegister && plan.registers[static_cast<size_t>(view.index)].slots.at(0) == buffer;
  };
  const std::vector<View>& views = outputs ? kernel.outputs : kernel.inputs;
  return std::any_of(views.begin(), views.end(), at);
}

// Gives the last reader of a joined value one of its own, and says whether it did.
bool join_for_last(CastsRead& read) {
  plan::Plan& plan = read.plan;
  const std::vector<Run> runs = runs_of(plan);
  for (size_t at = 0; at < runs.size(); ++at) {
    const plan::Kernel joining = plan.kernels[static_cast<size_t>(runs[at].kernel)];
    if (!joins_variables(joining)) continue;
    const int buffer = joining.outputs[0].index;
    size_t readers = 0, last = at;
    bool same = true;
    for (size_t other = at + 1; other < runs.size(); ++other) {
      const plan::Kernel& kernel = plan.kernels[static_cast<size_t>(runs[other].kernel)];
      if (touches(plan, kernel, buffer, true)) break;  // another value lies there now
      if (touches(plan, kernel, buffer, false)) {
        readers = same ? readers + 1 : 0;
        last = other;
        if (!same) break;
      }
      same = same && !writes_any(kernel, joining.inputs);
    }
    if (readers < 2) continue;
    const int own = static_cast<int>(plan.buffers.size()), copy = static_cast<int>(plan.kernels.size());
    plan.buffers.push_back(plan.buffers[static_cast<size_t>(buffer)]);
    plan.kernels.push_back(joining);
    plan.kernels.back().outputs[0].index = own;
    for (size_t i = 0; i < joining.inputs.size(); ++i) {
      const auto computed = read.computed.find({runs[at].kernel, i});
      if (computed != read.computed.end()) read.computed[{copy, i}] = computed->second;
    }
    for (View& view : plan.kernels[static_cast<size_t>(runs[last].kernel)].inputs)
      if (view.base == BaseKind::kBuffer && view.index == buffer) view.index = own;
    auto& program = plan.actors[static_cast<size_t>(runs[last].actor)].program;
    program.insert(program.begin() + static_cast<std::ptrdiff_t>(runs[last].place), {plan::InstrKind::kRun, copy});
    return true;
  }
  return false;
}

}  // namespace

std::map<std::string, std::string> narrow_constants(CastsRead& read, const Contents& contents) {
  return Narrower(read, contents).run();
}

void join_again(CastsRead& read) {
  while (join_for_last(read)) {
  }
}

}  // namespace sluice::c
