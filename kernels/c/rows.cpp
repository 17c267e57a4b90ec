// Elementwise steps with reductions of rows among them: a loop over rows, in which each reduction is a loop over
// elements, and so is what is made of all. Steps are computed in each loop that needs them, so that nothing is kept.
#include <fmt/format.h>

#include "base/error.h"
#include "kernels/c/steps.h"
#include "kernels/cpu/reduction/reduction.h"
#include "kernels/cpu/rows/row_lines.h"

namespace sluice::c {
namespace {

class RowsPrinter {
 public:
  RowsPrinter(const plan::KernelQuery& query, Shared& shared)
      : query_(query),
        shared_(shared),
        lie_(query),
        outputs_(get_attr<AttrGraph>(query.attrs, "body").outputs),
        body_(get_attr<AttrGraph>(query.attrs, "body"), lie_) {
    for (const TensorSpec& in : query.inputs) dtypes_.push_back(in.dtype);
    for (const AttrCall& call : get_attr<AttrGraph>(query.attrs, "body").calls)
      dtypes_.push_back(cpu::folds_rows(call.op) ? dtypes_.at(static_cast<size_t>(call.operands[0]))
                                                 : rounded_step(call, dtypes_, shared).dtype);
  }

  std::string print() {
    for (int axis = 0; axis < lie_.whole.rank() - lie_.axes; ++axis)
      lines_.loop(fmt::format("i{}", axis), lie_.whole[axis]);
    for (const int v : body_.rows()) body_.folds(v) ? fold(v) : make(v);
    std::vector<int> elements;
    for (const int v : outputs_)
      if (!body_.is_row(v)) elements.push_back(v);
    for (size_t k = 0; k < outputs_.size(); ++k)
      if (body_.is_row(outputs_[k])) write(k);
    if (!elements.empty()) open_row(elements);
    for (size_t k = 0; k < outputs_.size(); ++k)
      if (!body_.is_row(outputs_[k])) write(k);
    lines_.close_all();
    return lines_.text();
  }

 private:
  std::string place(const TensorSpec& spec) const {
    const Strides strides = cpu::broadcast_strides(spec, lie_.whole);
    std::vector<std::string> places;
    for (int axis = 0; axis < lie_.whole.rank(); ++axis)
      places.push_back(strides[axis] == 0 ? "" : fmt::format("i{}", axis));
    return offset(strides, places);
  }
  void read(int input) {
    const TensorSpec& spec = query_.inputs[static_cast<size_t>(input)];
    lines_.add(fmt::format("const {} v{} = x{}[{}];", compute_type(spec.dtype), input, input, place(spec)));
  }
  void write(size_t output) {
    const TensorSpec& spec = query_.outputs[output];
    lines_.add(fmt::format("y{}[{}] = ({})v{};", output, place(spec), memory_type(spec.dtype), outputs_[output]));
  }

  void make(int v) {
    if (body_.call_of(v) == nullptr)
      read(v);
    else
      define(lines_, static_cast<size_t>(v), rounded_step(*body_.call_of(v), dtypes_, shared_));
  }

  // Begins the loops over a row, with what these values are made of.
  void open_row(const std::vector<int>& values) {
    for (int axis = lie_.whole.rank() - lie_.axes; axis < lie_.whole.rank(); ++axis)
      lines_.loop(fmt::format("i{}", axis), lie_.whole[axis]);
    for (const int v : body_.elements(values)) make(v);
  }

  void fold(int v) {
    const AttrCall& call = *body_.call_of(v);
    const DType dtype = dtypes_[static_cast<size_t>(v)];
    const Fold fold = fold_of(call.op, dtype, shared_);
    lines_.add(fmt::format("{} v{};", compute_type(dtype), v));
    lines_.open("{");
    lines_.add(fmt::format("{} a = {};", compute_type(dtype), fold.begin));
    open_row({call.operands[0]});
    lines_.add(fmt::format("const {} v = v{};", compute_type(dtype), call.operands[0]));
    lines_.add(fmt::format("a = {};", fold.next));
    for (int axis = 0; axis < lie_.axes; ++axis) lines_.close();
    const std::string result = call.op == "mean" ? fmt::format("a / {}", lie_.length()) : "a";
    lines_.add(fmt::format("v{} = ({})({});", v, memory_type(dtype), result));
    lines_.close();
  }

  const plan::KernelQuery& query_;
  Shared& shared_;
  const cpu::RowLines lie_;
  const std::vector<int>& outputs_;  // values
  const cpu::RowBody body_;
  std::vector<DType> dtypes_;  // of values
  Lines lines_;
};

std::string print_fused_rows(const plan::KernelQuery& query, Shared& shared) {
  return RowsPrinter(query, shared).print();
}

}  // namespace

void add_rows(Printers& printers) { printers["fused_rows"] = {.print = print_fused_rows}; }

}  // namespace sluice::c
