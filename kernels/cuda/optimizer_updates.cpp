// Steps of optimizers: one pass over a parameter, its gradient and its state, for one parameter or for several in one
// launch. lr and step are read where they lie, on the device. No product and sum are joined, so that a step gives the
// same bits whether it makes its gradient itself or is given it.
#include <algorithm>

#include "kernels/cuda/expressions.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/steps.h"
#include "kernels/update_calls.h"

namespace sluice::cuda {
namespace {

// A step changes `param`, `grad` and `state0`, ... of one element, and replaces them.
struct Step {
  size_t tensors;                    // of its operands, in front: the parameter, its gradient, state
  std::vector<const char*> numbers;  // the operands behind them
  std::string before, element;       // statements: once for each thread, and for each element
};

Step sgd_step(Writer&, const NamedAttrs&) {
  return {2, {"lr"}, "", "    param = param - (C)lr * decayed(grad, param);\n"};
}

Step momentum_step(Writer& writer, const NamedAttrs& attrs) {
  writer.number("kMomentum", get_attr<double>(attrs, "momentum"));
  writer.number("kTaken", 1 - get_attr<double>(attrs, "dampening"));
  writer.add(fmt::format("constexpr bool kNesterov = {};\n", get_attr<bool>(attrs, "nesterov")));
  return {3, {"lr", "step"}, "  const bool first = step == 1;\n", R"(    const C g = decayed(grad, param);
    state0 = (first ? (C)0 : kMomentum) * state0 + (first ? (C)1 : kTaken) * g;
    param = param - (C)lr * (kNesterov ? g + kMomentum * state0 : state0);
)"};
}

Step adam_step(Writer& writer, const NamedAttrs& attrs, bool amsgrad) {
  const double beta1 = get_attr<double>(attrs, "beta1"), beta2 = get_attr<double>(attrs, "beta2");
  writer.number("kBeta2", beta2);
  writer.number("kTake1", 1 - beta1);
  writer.number("kTake2", 1 - beta2);
  writer.number("kEps", get_attr<double>(attrs, "eps"));
  writer.add(fmt::format("constexpr bool kDecoupled = {};\n", get_attr<bool>(attrs, "decoupled")));
  const char* const top =
      amsgrad ? "    const C top = state2 = state2 > state1 ? state2 : state1;\n" : "    const C top = state1;\n";
  // Powers take far longer than an element.
  return {amsgrad ? 5u : 4u,
          {"step", "lr"},
          fmt::format("  const C rate = (C)(lr / (1 - pow({}, step))), root2 = (C)(1 / sqrt(1 - pow({}, step)));\n",
                      number_text(beta1), number_text(beta2)),
          fmt::format(R"(    const C g = kDecoupled ? grad : decayed(grad, param);
    state0 = state0 + kTake1 * (g - state0);
    state1 = kBeta2 * state1 + kTake2 * g * g;
{}    param = (kDecoupled ? (C)(1 - lr * kDecay) : (C)1) * param - rate * (state0 / (sqrt(top) * root2 + kEps));
)",
                      top)};
}

Step step_of(Writer& writer, const AttrCall& call) {
  writer.number("kDecay", get_attr<double>(call.attrs, "weight_decay"));
  writer.number("kSign", get_attr<bool>(call.attrs, "maximize") ? -1 : 1);
  // Without decay a parameter that is infinite adds nothing.
  writer.add("__device__ C decayed(C grad, C param) { return kDecay == 0 ? grad : grad + kDecay * param; }\n");
  if (call.op == "sgd_update") return sgd_step(writer, call.attrs);
  if (call.op == "sgd_momentum_update") return momentum_step(writer, call.attrs);
  SLUICE_CHECK_KIND(kUnsupported, call.op == "adam_update" || call.op == "amsgrad_update",
                    "multi_update: body ends with {}; must with a step of an optimizer that has a cuda form", call.op);
  return adam_step(writer, call.attrs, call.op == "amsgrad_update");
}

// One launch of several calls of a body. A call's operands lie together in the query, and so do its results.
class Sweep {
 public:
  Sweep(const plan::KernelQuery& query, const AttrGraph& body, size_t calls)
      : query_(query),
        body_(body),
        calls_(calls),
        inputs_(static_cast<size_t>(body.inputs)),
        outputs_(query.outputs.size() / calls),
        writer_(query) {
    writer_.compute(query.inputs[0].dtype);
    step_ = step_of(writer_, body.calls.back());
  }

  Source source() {
    std::string text = pointers() + choice() + numbers();
    text += "  for (; i < elements; i += stride) {\n" + gradient() + operands() + step_.element + results() + "  }\n";
    Source source = writer_.blocks("", blocks_, text);
    source.contract = false;
    return source;
  }

 private:
  const TensorSpec& input(size_t v, size_t call = 0) const { return query_.inputs[call * inputs_ + v]; }
  // Whether operand v of each call is one element, however many the parameter has.
  bool is_number(size_t v) const {
    bool number = true, elements = true;
    for (size_t c = 0; c < calls_; ++c) {
      number &= input(v, c).shape.rank() == 0;
      elements &= input(v, c).shape == input(0, c).shape;
    }
    SLUICE_CHECK_KIND(kUnsupported, number || elements,
                      "{}: operand {} of a call is neither one element nor as large as the parameter; must be",
                      query_.op, v);
    return number;
  }
  std::string loaded(size_t v) const { return fmt::format("load(x{}[{}])", v, is_number(v) ? "0" : "i"); }

  // The operands and results of the call that a thread works for.
  std::string pointers() const {
    std::string text;
    for (size_t v = 0; v < inputs_; ++v) text += fmt::format("  const In{}* x{};\n", v, v);
    for (size_t o = 0; o < outputs_; ++o) text += fmt::format("  Out{}* y{};\n", o, o);
    return text + "  Index i, stride, elements;\n";
  }
  // Blocks serve the calls in their order.
  std::string choice() {
    std::string text;
    for (size_t c = 0; c < calls_; ++c) {
      const int64_t elements = numel(input(0, c).shape), begin = blocks_, blocks = blocks_for(elements);
      blocks_ += blocks;
      text += c == 0 ? "  " : " else ";
      if (c + 1 < calls_) text += fmt::format("if (blockIdx.x < {}) ", blocks_);
      text += "{\n   ";
      for (size_t v = 0; v < inputs_; ++v) text += fmt::format(" x{} = in{};", v, c * inputs_ + v);
      for (size_t o = 0; o < outputs_; ++o) text += fmt::format(" y{} = out{};", o, c * outputs_ + o);
      text +=
          fmt::format("\n    i = (Index)(blockIdx.x - {}) * kThreads + threadIdx.x, stride = {}, elements = {};\n  }}",
                      begin, blocks * kThreads, elements);
    }
    return text + "\n";
  }
  std::string numbers() const {
    const std::vector<int>& given = body_.calls.back().operands;
    std::string text;
    for (size_t k = 0; k < step_.numbers.size(); ++k) {
      const size_t operand = step_.tensors + k;  // 0 where there is none, or it is absent
      const std::string value =
          operand < given.size() ? fmt::format("x{0} == 0 ? 0 : (double)load(*x{0})", given[operand]) : "0";
      text += fmt::format("  const double {} = {};\n", step_.numbers[k], value);
    }
    return text + step_.before;
  }
  // The steps that make a gradient of what is given.
  std::string gradient() {
    std::string text, functions;
    std::vector<DType> dtypes;
    for (size_t v = 0; v < inputs_; ++v) {
      dtypes.push_back(input(v).dtype);
      const bool read = std::any_of(body_.calls.begin(), body_.calls.end() - 1, [&](const AttrCall& call) {
        return std::find(call.operands.begin(), call.operands.end(), static_cast<int>(v)) != call.operands.end();
      });
      if (read) text += fmt::format("    const {} v{} = {};\n", compute_type(dtypes[v]), v, loaded(v));
    }
    for (size_t k = 0; k + 1 < body_.calls.size(); ++k) {
      const StepText made = text_of(body_.calls[k], dtypes.size(), dtypes);
      functions += made.function;
      text += "    " + definition(made, dtypes.size()) + "\n";
      dtypes.push_back(made.dtype);
    }
    writer_.add(functions_for(functions) + kRounding + functions);
    return text;
  }
  std::string operands() const {
    std::string text;
    for (size_t k = 0; k < step_.tensors; ++k) {
      const auto v = static_cast<size_t>(body_.calls.back().operands[k]);
      const std::string value = v < inputs_ ? loaded(v) : fmt::format("v{}", v);
      text += k == 0   ? fmt::format("    C param = {};\n", value)
              : k == 1 ? fmt::format("    const C grad = kSign * (C){};\n", value)
                       : fmt::format("    C state{} = {};\n", k - 2, value);
    }
    return text;
  }
  // Stores what the step replaces, and the parameter in another dtype where there is one more.
  std::string results() const {
    std::string text = "    store(y0 + i, param);\n";
    for (size_t o = 1; o + 1 < step_.tensors; ++o) text += fmt::format("    store(y{} + i, state{});\n", o, o - 1);
    if (outputs_ == step_.tensors) text += fmt::format("    store(y{} + i, rounded<Out0>(param));\n", outputs_ - 1);
    return text;
  }

  const plan::KernelQuery& query_;
  const AttrGraph& body_;
  const size_t calls_, inputs_, outputs_;
  Writer writer_;
  Step step_;
  int64_t blocks_ = 0;
};

Generated update(const plan::KernelQuery& query) {
  AttrGraph body{static_cast<int>(query.inputs.size()), {{query.op, query.attrs, {}}}, {}};
  for (int k = 0; k < body.inputs; ++k) body.calls[0].operands.push_back(k);
  return {{Sweep(query, body, 1).source()}};
}

// A launch updates as many parameters as its arguments have room for.
Generated multi_update(const plan::KernelQuery& query) {
  const UpdateCalls calls(query);
  const size_t outputs = query.outputs.size() / calls.count;
  const size_t most = (kMostProgramOperands - 1) / (calls.inputs + outputs);
  Generated generated;
  for (size_t first = 0; first < calls.count; first += most) {
    const size_t last = std::min(first + most, calls.count);
    plan::KernelQuery part = query;
    part.inputs.clear();
    part.outputs.assign(query.outputs.begin() + static_cast<ptrdiff_t>(first * outputs),
                        query.outputs.begin() + static_cast<ptrdiff_t>(last * outputs));
    std::vector<size_t> places;  // of the part's inputs
    for (size_t c = first; c < last; ++c)
      for (size_t v = 0; v < calls.inputs; ++v) places.push_back(calls.place(v, c));
    for (size_t place : places) part.inputs.push_back(query.inputs[place]);
    Source source = Sweep(part, UpdateCalls::body(query), last - first).source();
    for (Operand& operand : source.operands) {
      if (operand.from == Operand::From::kInput) operand.index = places[operand.index];
      if (operand.from == Operand::From::kOutput) operand.index += first * outputs;
    }
    generated.stages.push_back(std::move(source));
  }
  return generated;
}

}  // namespace

void add_optimizer_update_kernels(KernelTable& table) {
  for (const char* op : {"sgd_update", "sgd_momentum_update", "adam_update", "amsgrad_update"})
    add_generated(table, op, update);
  add_generated(table, "multi_update", multi_update);
}

}  // namespace sluice::cuda
