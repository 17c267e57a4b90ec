// Convolutions and their gradients: each element of a result is one sum, so that nothing is kept beside it.
#include <fmt/format.h>

#include "base/error.h"
#include "kernels/c/int8.h"
#include "kernels/c/steps.h"

namespace sluice::c {
namespace {

// y = conv(x, w): n counts pictures, g groups, o and k channels of a group out and in, i places of y, j those of w, and
// p those of x.
class Convolution {
 public:
  Convolution(const plan::KernelQuery& query, const TensorSpec& x, const TensorSpec& w, const TensorSpec& y)
      : x_(x),
        w_(w),
        y_(y),
        stride_(get_attr<Ints>(query.attrs, "stride")),
        padding_(get_attr<Ints>(query.attrs, "padding")),
        dilation_(get_attr<Ints>(query.attrs, "dilation")),
        groups_(get_attr<int64_t>(query.attrs, "groups")),
        dims_(y.shape.rank() - 2),
        type_(sum_type(y.dtype)) {}

  // `bias` of query.inputs[2], or null.
  std::string forward(const TensorSpec* bias) {
    open_outputs();
    begin(bias == nullptr ? "0" : fmt::format("x2[c * {}]", bias->strides[0]));
    lines_.loop("k", w_.shape[1]);
    open_taps();
    add("x0", at_x(), "x1", at_w());
    return end(dims_ + 1, at_y());
  }

  // Of 8-bit integers.
  std::string forward_int8(const plan::KernelQuery& query, Shared& shared) {
    const Int8 sums(query, shared);
    sums.declare(lines_);
    Int8::wants_patch(w_, y_.shape[1] / groups_) ? sums_of_patches(sums) : sums_one_by_one(sums);
    const bool residual = query.inputs.size() > 5 && query.inputs[5].shape.rank() > 0;
    sums.finish(lines_, "c", residual ? at(query.inputs[5], {"n", "c"}, "i") : "", at_y());
    lines_.close_all();
    return lines_.text();
  }

  // Of the weight, from the gradient of y and from x.
  std::string weight_gradient() {
    lines_.loop("g", groups_);
    lines_.loop("o", y_.shape[1] / groups_);
    name_channel();
    lines_.loop("k", w_.shape[1]);
    open("j", w_.shape);
    begin("0");
    lines_.loop("n", y_.shape[0]);
    for (int d = 0; d < dims_; ++d) {
      lines_.loop(fmt::format("i{}", d), y_.shape[d + 2]);
      name_place(d);
    }
    add("x0", at_y(), "x1", at_x());
    return end(dims_ + 1, at_w());
  }

  // Of x, from the gradient of y and from the weight: it comes from every y of which a window has it.
  std::string input_gradient() {
    lines_.loop("n", x_.shape[0]);
    lines_.loop("g", groups_);
    lines_.loop("k", w_.shape[1]);
    open("p", x_.shape);
    begin("0");
    lines_.loop("o", y_.shape[1] / groups_);
    name_channel();
    for (int d = 0; d < dims_; ++d) {
      const size_t at = static_cast<size_t>(d);
      lines_.loop(fmt::format("j{}", d), w_.shape[d + 2]);
      lines_.add(fmt::format("const ptrdiff_t t{0} = p{0} + {1} - j{0} * {2};", d, padding_[at], dilation_[at]));
      lines_.add(fmt::format("const ptrdiff_t i{0} = t{0} / {1};", d, stride_[at]));
      const std::string between = stride_[at] == 1 ? "" : fmt::format("t{} % {} != 0 || ", d, stride_[at]);
      lines_.add(fmt::format("if (t{0} < 0 || {1}i{0} >= {2}) continue;", d, between, y_.shape[d + 2]));
    }
    add("x0", at_y(), "x1", at_w());
    return end(dims_ + 1, at_x());
  }

 private:
  void sums_one_by_one(const Int8& sums) {
    open_outputs();
    lines_.add(fmt::format("int32_t a = {};", sums.begin("c")));
    lines_.loop("k", w_.shape[1]);
    open_taps();
    lines_.add(fmt::format("a += {} * x1[{}];", sums.term(at_x()), at_w()));
    for (int k = 0; k <= dims_; ++k) lines_.close();
  }
  // All channels of a place read the same terms, which are sought once. What lies outside of x adds nothing.
  void sums_of_patches(const Int8& sums) {
    const int64_t count = numel(w_.shape) / w_.shape[0];
    Int8::declare_patch(lines_, count);
    lines_.loop("n", y_.shape[0]);
    lines_.loop("g", groups_);
    open("i", y_.shape);
    lines_.add("int16_t* term = patch;");
    lines_.loop("k", w_.shape[1]);
    std::string inside;
    for (int d = 0; d < dims_; ++d) {
      lines_.loop(fmt::format("j{}", d), w_.shape[d + 2]);
      add_place(d);
      if (padding_[static_cast<size_t>(d)] > 0)
        inside += fmt::format("{0}p{1} >= 0 && p{1} < {2}", inside.empty() ? "" : " && ", d, x_.shape[d + 2]);
    }
    const std::string term = sums.term(at_x());
    lines_.add(inside.empty() ? fmt::format("*term++ = (int16_t){};", term)
                              : fmt::format("*term++ = (int16_t)({} ? {} : 0);", inside, term));
    for (int k = 0; k <= dims_; ++k) lines_.close();
    sums.close_patch(lines_, count);
    lines_.loop("o", y_.shape[1] / groups_);
    name_channel();
    sums.dot(lines_, offset(w_.strides, std::vector<std::string>{"c"}), count, sums.begin("c"));
  }
  void name_channel() { lines_.add(fmt::format("const ptrdiff_t c = g * {} + o;", y_.shape[1] / groups_)); }
  void open_outputs() {
    lines_.loop("n", y_.shape[0]);
    lines_.loop("g", groups_);
    lines_.loop("o", y_.shape[1] / groups_);
    name_channel();
    open("i", y_.shape);
  }
  void open(const char* name, const Shape& shape) {
    for (int d = 0; d < dims_; ++d) lines_.loop(fmt::format("{}{}", name, d), shape[d + 2]);
  }
  void begin(const std::string& value) { lines_.add(fmt::format("{} a = {};", type_, value)); }
  // The place of x that the window of place i has at j, where it is inside.
  void name_place(int d) {
    const size_t at = static_cast<size_t>(d);
    add_place(d);
    if (padding_[at] > 0) lines_.add(fmt::format("if (p{0} < 0 || p{0} >= {1}) continue;", d, x_.shape[d + 2]));
  }
  void add_place(int d) {
    const size_t at = static_cast<size_t>(d);
    lines_.add(fmt::format("const ptrdiff_t p{0} = i{0} * {1} + j{0} * {2} - {3};", d, stride_[at], dilation_[at],
                           padding_[at]));
  }
  void open_taps() {
    for (int d = 0; d < dims_; ++d) {
      lines_.loop(fmt::format("j{}", d), w_.shape[d + 2]);
      name_place(d);
    }
  }
  std::string at(const TensorSpec& spec, std::vector<std::string> places, const char* name) const {
    for (int d = 0; d < dims_; ++d) places.push_back(fmt::format("{}{}", name, d));
    return offset(spec.strides, places);
  }
  std::string at_x() const { return at(x_, {"n", fmt::format("(g * {} + k)", w_.shape[1])}, "p"); }
  std::string at_w() const { return at(w_, {"c", "k"}, "j"); }
  std::string at_y() const { return at(y_, {"n", "c"}, "i"); }
  void add(const char* first, const std::string& at_first, const char* second, const std::string& at_second) {
    lines_.add(fmt::format("const {} v = {}[{}], w = {}[{}];", type_, first, at_first, second, at_second));
    lines_.add(product_sum(y_.dtype));
  }
  // Ends the loops of the sum, and writes it.
  std::string end(int loops, const std::string& place) {
    for (int k = 0; k < loops; ++k) lines_.close();
    lines_.add(fmt::format("y0[{}] = ({})a;", place, memory_type(y_.dtype)));
    lines_.close_all();
    return lines_.text();
  }

  const TensorSpec &x_, &w_, &y_;
  const Ints &stride_, &padding_, &dilation_;
  const int64_t groups_;
  const int dims_;
  const char* const type_;
  Lines lines_;
};

std::string print_conv(const plan::KernelQuery& query, Shared&) {
  const bool bias = query.inputs.size() > 2 && query.inputs[2].shape.rank() == 1;
  return Convolution(query, query.inputs.at(0), query.inputs.at(1), query.outputs.at(0))
      .forward(bias ? &query.inputs[2] : nullptr);
}

std::string print_int8_conv(const plan::KernelQuery& query, Shared& shared) {
  return Convolution(query, query.inputs.at(0), query.inputs.at(1), query.outputs.at(0)).forward_int8(query, shared);
}

std::string print_weight_grad(const plan::KernelQuery& query, Shared&) {
  return Convolution(query, query.inputs.at(1), query.outputs.at(0), query.inputs.at(0)).weight_gradient();
}

std::string print_input_grad(const plan::KernelQuery& query, Shared&) {
  return Convolution(query, query.outputs.at(0), query.inputs.at(1), query.inputs.at(0)).input_gradient();
}

}  // namespace

void add_convolutions(Printers& printers) {
  printers["conv"] = {.print = print_conv};
  printers["int8_conv"] = {.print = print_int8_conv};
  printers["int8_conv_fixed"] = {.print = print_int8_conv};
  printers["conv_weight_grad"] = {.print = print_weight_grad};
  printers["conv_input_grad"] = {.print = print_input_grad};
}

}  // namespace sluice::c
