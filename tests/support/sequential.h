#pragma once
// The meaning of a plan, without actors: its programs run one after the other on channels that are never full.
//
// Kahn's reading of a plan: a register is an endless sequence of tokens, each with memory of its own; a firing of an
// actor reads the tokens its rates name, by number, and appends to the sequences it makes. There are no quotas, slots,
// acks or messages here, so what the runtime does with those cannot be wrong in the same way.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "plan/plan.h"

namespace sluice::test {

class Sequential {
 public:
  using Bytes = std::vector<std::byte>;
  // The answer that a step's handle shows: the plan's outputs, or that a firing it depends on has failed, or that one
  // is void.
  struct Answer {
    bool failed = false;
    std::vector<Bytes> outputs;
  };
  // Kernel `kernel` fails in firing number `firing` of its actor, before it has written anything.
  struct Failure {
    int kernel = -1;
    uint64_t firing = 0;
  };

  // Source `actor` has data for so many firings.
  struct End {
    int actor = -1;
    uint64_t firings = 0;
  };

  // Kernels are host functions and copies. REQUIRES: `plan` and `functions` outlive this; the plan verifies.
  // An index of "case" and "esac" is int64.
  Sequential(const plan::Plan& plan, const HostFunctions& functions, Failure failure = {-1, 0}, End end = {-1, 0})
      : plan_(plan),
        functions_(functions),
        failure_(failure),
        end_(end),
        adjacency_(plan),
        tokens_(plan.registers.size()),
        drafts_(plan.registers.size()),
        rows_(plan.inputs.size()),
        firings_(plan.actors.size()) {
    for (size_t r = 0; r < plan.registers.size(); ++r) {
      const plan::Register& reg = plan.registers[r];
      for (int t = 0; t < reg.initial_tokens; ++t) tokens_[r].push_back(Token{Bytes(reg.bytes)});
    }
    for (const plan::Buffer& buffer : plan.buffers) buffers_.push_back(Token{Bytes(buffer.bytes)});
    for (const plan::Variable& variable : plan.variables) variables.push_back(Bytes(variable.spec.extent_bytes()));
  }

  std::vector<Bytes> variables;  // zeros at the start
  // Whether some firing has written it, per variable.
  std::vector<bool> updated() const { return updated_; }

  // One more step: what it makes possible happens before this returns. Inputs have the rows of all firings of a feed.
  void step(const std::vector<Bytes>& inputs) {
    updated_.resize(plan_.variables.size());
    ++steps_;
    for (size_t i = 0; i < inputs.size(); ++i) rows_[i].insert(rows_[i].end(), inputs[i].begin(), inputs[i].end());
    for (bool fired = true; fired;) {
      fired = false;
      for (size_t a = 0; a < plan_.actors.size(); ++a) {
        while (possible(static_cast<int>(a))) {
          fire(static_cast<int>(a));
          fired = true;
        }
      }
    }
  }

  uint64_t steps() const { return steps_; }
  uint64_t firings(int actor) const { return firings_[actor]; }
  // Per firing of the sink.
  const std::vector<Answer>& answers() const { return answers_; }

 private:
  struct Token {
    Bytes data;
    bool failed = false;
    bool empty = false;    // void: of a branch not taken
    bool written = false;  // by some firing of those that make it
  };

  const Token& token(int edge, int index) const {
    const plan::Edge& e = plan_.edges[edge];
    const uint64_t first = firings_[e.consumer] / static_cast<uint64_t>(e.hold) * static_cast<uint64_t>(e.take);
    return tokens_[e.reg][first + static_cast<uint64_t>(index)];
  }

  bool possible(int actor) const {
    if (is_started(plan_.actors[actor]) &&
        firings_[actor] == steps_ * static_cast<uint64_t>(plan_.actors[actor].starts))
      return false;
    if (actor == end_.actor && firings_[actor] == end_.firings) return false;
    for (const int edge : adjacency_.in_edges[actor]) {
      const plan::Edge& e = plan_.edges[edge];
      const uint64_t holds = firings_[actor] / static_cast<uint64_t>(e.hold) + 1;
      if (tokens_[e.reg].size() < holds * static_cast<uint64_t>(e.take)) return false;
    }
    return true;
  }

  // A failed token fails who reads it; but feedback that only orders firings tells nothing.
  bool passes_failure(const plan::Register& reg) const { return reg.bytes > 0 || reg.initial_tokens == 0; }

  void fire(int actor) {
    bool failed = false;
    for (const int edge : adjacency_.in_edges[actor]) {
      const plan::Edge& e = plan_.edges[edge];
      for (int t = 0; t < e.take; ++t) failed |= passes_failure(plan_.registers[e.reg]) && token(edge, t).failed;
    }
    for (const int r : adjacency_.out_registers[actor]) {
      const plan::Register& reg = plan_.registers[r];
      if (firings_[actor] % static_cast<uint64_t>(reg.emit_every) != 0) continue;
      if (plan_.actors[actor].role != plan::ActorRole::kFeed) drafts_[r] = Token{Bytes(reg.bytes)};
      if (reg.in_place_of >= 0) drafts_[r].data = token(reg.in_place_of, 0).data;
    }
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      const plan::Input& input = plan_.inputs[i];
      if (plan_.registers[input.reg].producer != actor) continue;
      const auto first = rows_[i].begin() + static_cast<std::ptrdiff_t>(firings_[actor] * input.spec.extent_bytes());
      drafts_[input.reg] = Token{Bytes(first, first + static_cast<std::ptrdiff_t>(input.spec.extent_bytes()))};
    }
    if (plan_.actors[actor].role == plan::ActorRole::kSink) answer(actor, failed);
    for (const plan::Instr& instr : plan_.actors[actor].program) {
      if (instr.kind == plan::InstrKind::kRun && !failed) {
        failed = instr.index == failure_.kernel && firings_[actor] == failure_.firing;
        if (!failed) run(actor, plan_.kernels[instr.index]);
      }
      if (instr.kind == plan::InstrKind::kEmit) emit(actor, instr.index, failed);
    }
    ++firings_[actor];
  }

  void emit(int actor, int r, bool failed) {
    const plan::Register& reg = plan_.registers[r];
    drafts_[r].failed |= failed && passes_failure(reg);
    if ((firings_[actor] + 1) % static_cast<uint64_t>(reg.emit_every) == 0) tokens_[r].push_back(drafts_[r]);
  }

  int edge_of(int actor, int reg) const {
    for (const int edge : adjacency_.in_edges[actor]) {
      if (plan_.edges[edge].reg == reg) return edge;
    }
    return -1;
  }

  void answer(int actor, bool failed) {
    Answer answer;
    answer.failed = failed;
    for (const plan::Output& output : plan_.outputs) {
      const int edge = edge_of(actor, output.view.index);
      if (!failed && token(edge, output.view.token).empty) answer.failed = true;
      if (!failed) answer.outputs.push_back(token(edge, output.view.token).data);
    }
    answers_.push_back(std::move(answer));
  }

  std::byte* address(int actor, const plan::View& view, bool written) {
    switch (view.base) {
      case plan::BaseKind::kBuffer: return buffers_[view.index].data.data() + view.offset;
      case plan::BaseKind::kVariable: return variables[view.index].data() + view.offset;
      case plan::BaseKind::kRegister: break;
    }
    const int edge = edge_of(actor, view.index);
    if (written || edge < 0) return drafts_[view.index].data.data() + view.offset;
    for (const int r : adjacency_.out_registers[actor]) {
      if (plan_.registers[r].in_place_of == edge) return drafts_[r].data.data() + view.offset;
    }
    return const_cast<std::byte*>(token(edge, view.token).data.data()) + view.offset;
  }

  // The token that holds the value of a view; null for variables, which are never void.
  Token* holder(int actor, const plan::View& view, bool written) {
    if (plan::is_absent(view) || view.base == plan::BaseKind::kVariable) return nullptr;
    if (view.base == plan::BaseKind::kBuffer) return &buffers_[view.index];
    const int edge = edge_of(actor, view.index);
    return written || edge < 0 ? &drafts_[view.index] : const_cast<Token*>(&token(edge, view.token));
  }

  bool is_void(int actor, const plan::View& view) {
    const Token* const held = holder(actor, view, false);
    return held != nullptr && held->empty;
  }

  // Per output, whether the kernel leaves it void.
  std::vector<bool> voids(int actor, const plan::Kernel& kernel) {
    std::vector<bool> in;
    for (const plan::View& view : kernel.inputs) in.push_back(is_void(actor, view));
    const bool any = std::find(in.begin(), in.end(), true) != in.end();
    if (kernel.op != "case" && kernel.op != "esac") return std::vector<bool>(kernel.outputs.size(), any);
    int64_t index = 0;
    if (!in[0]) std::memcpy(&index, address(actor, kernel.inputs[0], false), sizeof index);
    if (kernel.op == "esac") return {in[0] || in[static_cast<size_t>(index) + 1]};
    std::vector<bool> out(kernel.outputs.size(), true);
    out[static_cast<size_t>(index)] = any;
    return out;
  }

  void run(int actor, const plan::Kernel& kernel) {
    const std::vector<bool> left_void = voids(actor, kernel);
    for (size_t o = 0; o < left_void.size(); ++o) {
      Token* const held = holder(actor, kernel.outputs[o], true);
      if (held == nullptr || (left_void[o] && held->written)) continue;
      held->empty = left_void[o];
      held->written = kernel.outputs[o].base == plan::BaseKind::kRegister && (held->written || !left_void[o]);
    }
    if (std::find(left_void.begin(), left_void.end(), false) == left_void.end()) return;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    std::vector<TensorSpec> in, out;
    for (const plan::View& view : kernel.inputs) {
      inputs.push_back(plan::is_absent(view) ? nullptr : address(actor, view, false));
      in.push_back(view.spec);
    }
    for (const plan::View& view : kernel.outputs) {
      outputs.push_back(address(actor, view, true));
      out.push_back(view.spec);
      if (!left_void[outputs.size() - 1] && view.base == plan::BaseKind::kVariable) updated_[view.index] = true;
    }
    if (kernel.op == "case" || kernel.op == "esac") {
      const auto index = static_cast<size_t>(*static_cast<const int64_t*>(inputs[0]));
      const bool fans_out = kernel.op == "case";
      std::memcpy(outputs[fans_out ? index : 0], inputs[fans_out ? 1 : index + 1], in[1].extent_bytes());
      return;
    }
    if (kernel.op == "copy") {
      std::memcpy(outputs[0], inputs[0], in[0].extent_bytes());
      return;
    }
    functions_.at(get_attr<std::string>(kernel.attrs, "name"))({inputs.data(), outputs.data()}, in, out);
  }

  const plan::Plan& plan_;
  const HostFunctions& functions_;
  const Failure failure_;
  const End end_;
  const plan::Adjacency adjacency_;
  std::vector<std::vector<Token>> tokens_;  // per register, all there ever were
  std::vector<Token> drafts_;               // per register: the token being made
  std::vector<Bytes> rows_;                 // per input, of all steps
  std::vector<Token> buffers_;
  std::vector<uint64_t> firings_;
  std::vector<bool> updated_;
  std::vector<Answer> answers_;
  uint64_t steps_ = 0;
};

}  // namespace sluice::test
