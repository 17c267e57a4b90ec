#include "actors/branches.h"

#include <algorithm>

namespace sluice::actors {

using plan::BaseKind;
using plan::View;

namespace {

// The mark of the register or buffer that a view is of; null of a variable, and of what is absent.
std::vector<bool>* marks_of(RunState& run, const View& view) {
  if (view.index < 0 || view.base == BaseKind::kVariable) return nullptr;
  return view.base == BaseKind::kRegister ? &run.void_registers : &run.void_buffers;
}

bool reads_marked(RunState& run, const plan::Kernel& kernel) {
  return std::any_of(kernel.inputs.begin(), kernel.inputs.end(), [&](const View& view) {
    const std::vector<bool>* marks = marks_of(run, view);
    return marks != nullptr && (*marks)[static_cast<size_t>(view.index)];
  });
}

}  // namespace

void find_voids(RunState& run, const Bindings& bindings) {
  if (std::find(bindings.branches.begin(), bindings.branches.end(), true) == bindings.branches.end()) return;
  const plan::Plan& plan = *run.plan;
  run.void_registers.resize(plan.registers.size());
  run.void_buffers.resize(plan.buffers.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t k = 0; k < plan.kernels.size(); ++k) {
      if (!bindings.branches[k] && !reads_marked(run, plan.kernels[k])) continue;
      for (const View& view : plan.kernels[k].outputs) {
        std::vector<bool>* marks = marks_of(run, view);
        if (marks == nullptr || (*marks)[static_cast<size_t>(view.index)]) continue;
        (*marks)[static_cast<size_t>(view.index)] = true;
        changed = true;
      }
    }
  }
}

int VoidPlaces::new_place() {
  program_.voids.emplace_back();
  return static_cast<int>(program_.voids.size()) - 1;
}

int VoidPlaces::place(const View& view, bool written) {
  if (view.index < 0 || view.base == BaseKind::kVariable) return -1;
  const auto index = static_cast<size_t>(view.index);
  if (view.base == BaseKind::kBuffer) {
    if (!run_.void_buffers[index]) return -1;
    for (const auto& [buffer, at] : buffers_)
      if (buffer == view.index) return at;
    buffers_.emplace_back(view.index, new_place());
    return buffers_.back().second;
  }
  if (!run_.void_registers[index]) return -1;
  const auto in = std::find_if(program_.ins.begin(), program_.ins.end(),
                               [&](const InPort& port) { return port.reg == view.index; });
  if (in != program_.ins.end() && !written) {  // the token taken, as its address is
    for (const auto& [token, at] : in->voids)
      if (token == view.token) return at;
    in->voids.emplace_back(view.token, new_place());
    return in->voids.back().second;
  }
  const auto out = std::find_if(program_.outs.begin(), program_.outs.end(),
                                [&](const OutPort& port) { return port.reg == view.index; });
  if (out == program_.outs.end()) return -1;
  if (out->voids < 0) out->voids = new_place();
  return out->voids;
}

void VoidPlaces::add(KernelRun& kernel, int index, bool branches) {
  const plan::Kernel& of = run_.plan->kernels[static_cast<size_t>(index)];
  std::vector<int> inputs, outputs;
  for (const View& view : of.inputs) inputs.push_back(place(view, false));
  for (const View& view : of.outputs) outputs.push_back(place(view, true));
  if (branches) kernel.told = std::make_unique<bool[]>(inputs.size() + outputs.size());
  const auto kept = [](int at) { return at >= 0; };
  const bool none =
      std::none_of(inputs.begin(), inputs.end(), kept) && std::none_of(outputs.begin(), outputs.end(), kept);
  if (none && !branches) return;
  kernel.void_inputs = std::move(inputs);
  kernel.void_outputs = std::move(outputs);
}

// The first void input of a kernel that cannot do without it, or null.
const NotTaken* Node::void_input(const KernelRun& run) const {
  if (run.told != nullptr) return nullptr;
  for (const int at : run.void_inputs)
    if (at >= 0 && program_->voids[at]) return &program_->voids[at];
  return nullptr;
}

namespace {

Status void_collective(const plan::Plan& plan, const plan::Kernel& kernel, NotTaken why) {
  try {
    return {
        ErrorKind::kUnsupported,
        fmt::format("{}: an input is void: branch {} of kernel '{}' was not taken; what ranks do together must stand "
                    "outside of branches",
                    kernel.op, why.branch, plan.kernels[why.kernel].name)};
  } catch (...) {
    return Status::from_current_exception();
  }
}

}  // namespace

// The kernel does not run, and what it would have written is void.
Status Node::leave_out(const KernelRun& run, NotTaken not_taken, uint64_t step, uint32_t flags) {
  const plan::Kernel& kernel = run_->plan->kernels[run.index];
  if (kernel.collective >= 0) {
    const Status status = in_firing(void_collective(*run_->plan, kernel, not_taken), run.context);
    fail_firing(step, status);
    run_->listener->on_missed_collective(run.index, status);
    return status;
  }
  for (const int at : run.void_outputs)
    if (at >= 0) set_void(at, not_taken);
  published_left_out_.store(left_out() + 1, std::memory_order_relaxed);
  if ((flags & kRunTraced) != 0) {
    const int64_t at_ns = program_->clock_ns = now_ns();
    trace({.kernel = run.index, .step = step, .begin_ns = at_ns, .left_out = true}, at_ns);
  }
  return {};
}

// Sets whether a place of the program holds a void token from now on. A token that something has been written to is not
// void, whatever else was left out.
void Node::set_void(int place, NotTaken not_taken) {
  const auto out = std::find_if(program_->outs.begin(), program_->outs.end(),
                                [&](const OutPort& port) { return port.voids == place; });
  if (out != program_->outs.end()) {
    if (not_taken && (out->filled || out->filling)) return;
    out->filling |= !not_taken;
  }
  program_->voids[place] = not_taken;
}

// Tells a kernel with branches, before it runs, which of its operands are void.
void Node::tell_voids(const KernelRun& run) const {
  bool* told = run.told.get();
  for (const int at : run.void_inputs) *told++ = at >= 0 && program_->voids[at];
  std::fill_n(told, run.void_outputs.size(), false);
}

// The kernel has run: its outputs are there, but for those that it says are void.
void Node::wrote(const KernelRun& run) {
  if (run.fills >= 0 && run.told == nullptr) program_->outs[run.fills].filling = true;
  NotTaken passed_on;
  for (const int at : run.void_inputs)
    if (at >= 0 && program_->voids[at] && !passed_on) passed_on = program_->voids[at];
  const size_t inputs = run.void_inputs.size();
  for (size_t o = 0; o < run.void_outputs.size(); ++o) {
    if (run.void_outputs[o] < 0) continue;
    NotTaken now;
    if (run.told != nullptr && run.told[inputs + o]) {
      now = passed_on;
      if (!now) now = {run.index, static_cast<int>(o)};
    }
    set_void(run.void_outputs[o], now);
  }
}

// A sink fails where one of the values that it hands out is void, since callers know of no void values.
Status Node::void_output() const try {
  for (size_t o = 0; o < program_->sink_voids.size(); ++o) {
    const int at = program_->sink_voids[o];
    if (at < 0 || !program_->voids[at]) continue;
    const NotTaken& why = program_->voids[at];
    const plan::Kernel& chooses = run_->plan->kernels[why.kernel];
    const int output = outputs_of(*run_->plan, run_->adjacency, actor_)[o];
    return {ErrorKind::kRuntime,
            fmt::format("{}step {}: output '{}' is void: it is made in branch {} of kernel '{}', which was not taken; "
                        "esac must join the branches before a value leaves the plan",
                        chooses.prefix(), run_->counts.step_of(actor_, rule_.firings()),
                        run_->plan->outputs[output].name, why.branch, chooses.name)};
  }
  return {};
} catch (...) {  // out of memory
  return Status::from_current_exception();
}

}  // namespace sluice::actors
