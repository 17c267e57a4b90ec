#include "graph/autodiff/reads.h"

#include <string>
#include <unordered_map>
#include <variant>

#include "graph/builder.h"
#include "graph/executor.h"
#include "graph/tape.h"

namespace sluice {
namespace {

constexpr size_t kMostRemembered = 4096;  // calls

using graph::Graph;
using graph::GraphBuilder;

// A call as its rule sees it: symbols of a graph in place of its operands.
class Symbols {
 public:
  Symbols(std::span<const Value> inputs, std::span<const Value> outputs) {
    const auto add = [&](const Value& like, const char* kind, size_t index) {
      if (!like.defined()) return Value();
      const std::string name = fmt::format("{}{}", kind, index);
      return builder_.value(graph_.add_input(name, like.type()));
    };
    for (size_t i = 0; i < inputs.size(); ++i) inputs_.push_back(add(inputs[i], "input", i));
    for (size_t i = 0; i < outputs.size(); ++i) outputs_.push_back(add(outputs[i], "output", i));
    for (size_t i = 0; i < outputs.size(); ++i)
      grads_.push_back(is_differentiable(outputs[i].dtype()) ? add(outputs[i], "grad", i) : Value());
  }

  // Runs the rule with the gradients of the outputs in `given` (all: -1) and notes what it reads.
  void run(const OpDef& op, const Attrs& attrs, std::span<const bool> needs, int given) {
    std::vector<Value> grads = grads_;
    for (size_t i = 0; i < grads.size(); ++i)
      if (given >= 0 && static_cast<int>(i) != given) grads[i] = Value();
    const ExecutorScope scope(builder_);
    const GradMode off(false);
    const std::vector<Value> found = op.grad({inputs_, outputs_, grads, attrs, needs});
    decomposes_ |= found.empty();
    for (const Value& made : found)
      if (made.defined()) graph_.add_output(fmt::format("result{}", graph_.outputs().size()), builder_.id(made));
  }

  int num_grads() const {
    int n = 0;
    for (const Value& grad : grads_) n += grad.defined();
    return n;
  }
  const std::vector<Value>& grads() const { return grads_; }
  bool decomposes() const { return decomposes_; }  // the rule leaves it to op.decompose

  OperandReads found() {
    std::vector<bool> read(graph_.values().size(), false);
    for (const graph::Node& node : graph_.nodes())
      for (graph::ValueId input : node.inputs)
        if (input != graph::kNoValue) read[input] = true;
    for (const graph::Output& output : graph_.outputs()) read[output.value] = true;
    const auto of = [&](const std::vector<Value>& values) {
      std::vector<bool> reads;
      for (const Value& value : values) reads.push_back(value.defined() && read[builder_.id(value)]);
      return reads;
    };
    return {of(inputs_), of(outputs_)};
  }

 private:
  Graph graph_;
  GraphBuilder builder_{graph_, {}};
  std::vector<Value> inputs_, outputs_, grads_;
  bool decomposes_ = false;
};

OperandReads find_reads(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs,
                        std::span<const Value> outputs, std::span<const bool> needs) {
  if (!op.grad) return {std::vector<bool>(inputs.size(), true), std::vector<bool>(outputs.size(), false)};
  try {
    Symbols symbols(inputs, outputs);
    if (symbols.num_grads() == 0)  // of integers: the rule is never run
      return {std::vector<bool>(inputs.size(), false), std::vector<bool>(outputs.size(), false)};
    symbols.run(op, attrs, needs, -1);
    if (symbols.num_grads() > 1) {  // a rule may take another way when some output has no gradient
      for (size_t i = 0; i < outputs.size(); ++i)
        if (symbols.grads()[i].defined()) symbols.run(op, attrs, needs, static_cast<int>(i));
    }
    OperandReads reads = symbols.found();
    if (symbols.decomposes()) reads.inputs.assign(inputs.size(), true);
    return reads;
  } catch (const std::exception&) {  // backward() will throw it; until then nothing is known
    return {std::vector<bool>(inputs.size(), true), std::vector<bool>(outputs.size(), true)};
  }
}

// Equal calls have equal keys.
void write_key(std::string& key, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs,
               std::span<const Value> outputs, std::span<const bool> needs) {
  const auto raw = [&](const auto& item) { key.append(reinterpret_cast<const char*>(&item), sizeof(item)); };
  const OpDef* const identity = &op;
  raw(identity);
  key += op.extension;  // of which another may come to lie at the same address
  for (std::span<const Value> values : {inputs, outputs}) {
    raw(values.size());
    for (const Value& value : values) {
      if (!value.defined()) {
        key += '-';
        continue;
      }
      raw(value.dtype());
      raw(value.rank());
      for (int i = 0; i < value.rank(); ++i) raw(value.shape()[i]);
    }
  }
  for (const bool need : needs) key += need ? '1' : '0';
  for (const Attr& attr : attrs) {
    raw(attr.index());
    std::visit(
        [&](const auto& content) {
          using T = std::decay_t<decltype(content)>;
          if constexpr (std::is_same_v<T, std::string>) {
            raw(content.size());
            key += content;
          } else if constexpr (std::is_same_v<T, Ints>) {
            raw(content.size());
            for (int64_t i : content) raw(i);
          } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
            raw(content);
          } else {
            key += attr_str(attr);
          }
        },
        attr);
  }
}

}  // namespace

const OperandReads& reads_of_rule(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs,
                                  std::span<const Value> outputs, std::span<const bool> needs) {
  thread_local std::unordered_map<std::string, OperandReads> known;
  thread_local std::string key;
  key.clear();
  write_key(key, op, inputs, attrs, outputs, needs);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  if (known.size() >= kMostRemembered) known.clear();
  return known.emplace(key, find_reads(op, inputs, attrs, outputs, needs)).first->second;
}

}  // namespace sluice
