#pragma once
// Runs op calls: now (eager) or later (tracing). The single point through which every op call goes is call().
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "base/provenance.h"
#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice {

// Implemented twice, in tensor/. Knows nothing of gradients.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::vector<Value> call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) = 0;
  // Writes `source` (same type, or broadcastable and cast) into `target`, in place and through views.
  virtual void assign(const Value& target, const Value& source) = 0;
  // The same memory without history.
  virtual Value detach(const Value& value) = 0;
  // A copy that shares no memory, without history. If values are immutable, a new handle is a copy.
  virtual Value copy(const Value& value) { return detach(value); }
  // `value` as it may be written where `other` is: of the same graph, if that belongs to one.
  virtual Value in_graph_of(const Value& other, const Value& value) {
    (void)other;
    return value;
  }
  // The inputs of a call that lie on several devices, as they are to be taken; empty: as they are. Throws kRuntime
  // where they do not go together. Inputs that it moves are moved differentiably.
  virtual std::vector<Value> placed(const OpDef& op, std::span<const Value> inputs) {
    (void)op, (void)inputs;
    return {};
  }
  // The value of a bool scalar. Throws kUnsupported where values are not known.
  virtual bool is_true(const Value& value);
  // The origin of the call made last, for work that is called on its behalf later; null where nobody asks.
  virtual std::shared_ptr<const Provenance> origin() { return nullptr; }
};

// The executor of this thread: the innermost ExecutorScope's, else the process default.
Executor& current_executor();                   // throws kRuntime when there is none
void set_default_executor(Executor* executor);  // null clears it

class ExecutorScope {
 public:
  explicit ExecutorScope(Executor& executor);
  ~ExecutorScope();
  ExecutorScope(const ExecutorScope&) = delete;
  ExecutorScope& operator=(const ExecutorScope&) = delete;

 private:
  Executor* previous_;
};

// The device of results of ops without inputs, on this thread, when they run now: the device of the tensors that a
// function computes with, as long as it does; else the cpu.
const DeviceId& creation_device();
class CreationScope {
 public:
  explicit CreationScope(const DeviceId& device);
  ~CreationScope();
  CreationScope(const CreationScope&) = delete;
  CreationScope& operator=(const CreationScope&) = delete;

 private:
  const DeviceId previous_;
};

// Calls `op`: checks inputs and attributes, runs it on the current executor, records it for autodiff when gradients
// are enabled and an input requires one. Errors carry the op's name.
std::vector<Value> call(const OpDef& op, std::span<const Value> inputs, Attrs attrs = {});
// The single output of a one-output op.
Value call1(const OpDef& op, std::initializer_list<Value> inputs, Attrs attrs = {});

}  // namespace sluice
