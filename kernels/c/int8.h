#pragma once
// Sums of products of 8-bit integers, and what becomes of them: int8_conv, int8_linear, and those of fixed point.
#include <string>

#include "kernels/c/printer.h"

namespace sluice::c {

class Int8 {
 public:
  Int8(const plan::KernelQuery& query, Shared& shared);

  // Declares what terms are made of.
  void declare(Lines& lines) const;
  // An element of x, less the integer that stands for 0.
  std::string term(const std::string& place) const;
  // The number that the sum of an output channel begins with.
  std::string begin(const std::string& channel) const;
  // Scales the sum `a` as the op says, and writes it to y0[place]. A residual is at `residual`.
  void finish(Lines& lines, const std::string& channel, const std::string& residual, const std::string& place) const;

  // True if the terms of several sums are worth a list of their own, "patch", of which dot() makes each sum: where it
  // is no large one, and a sum's weights lie one after the other.
  static bool wants_patch(const TensorSpec& weight, int64_t sums);
  // Declares the list for sums of `count` terms.
  static void declare_patch(Lines& lines, int64_t count);
  // To be written behind the last term.
  void close_patch(Lines& lines, int64_t count) const;
  // Adds the sum `a` of the patch and the weights from x1[weights] on.
  void dot(Lines& lines, const std::string& weights, int64_t count, const std::string& begin) const;

 private:
  void finish_fixed(Lines& lines, const std::string& channel, const std::string& place) const;
  bool has(size_t input) const;
  std::string row(size_t input, const std::string& channel) const;
  int64_t number(const char* name) const;

  const plan::KernelQuery& query_;
  Shared& shared_;
  bool fixed_;
};

}  // namespace sluice::c
