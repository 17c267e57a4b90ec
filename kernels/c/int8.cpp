#include "kernels/c/int8.h"

#include <fmt/format.h>

#include "base/error.h"

namespace sluice::c {
namespace {

enum Input { kX, kWeight, kScale, kShift, kZero, kResidual, kResidualScale };
enum FixedInput { kMultiplier = 2, kExponent, kBias };

constexpr int64_t kMostTerms = 1024;  // of a patch, which lies on the stack
constexpr int64_t kFewestSums = 4;    // that make a patch worth its time

// Sums of products of 16-bit by 8-bit integers. Processors with Arm's DSP instructions make two products at once: of
// the weights' bytes 0 and 2, and 1 and 3, so that their terms lie side by side. SLUICE_PLAIN leaves this out.
constexpr const char* kDot = R"(#if defined(__ARM_FEATURE_DSP) && !defined(__ARM_BIG_ENDIAN) && !defined(SLUICE_PLAIN)
#include <arm_acle.h>
#include <string.h>
static inline int32_t word_at(const void* place) {
  int32_t word;
  memcpy(&word, place, sizeof(word));
  return word;
}
static inline void pair_terms(int16_t* patch, ptrdiff_t n) {
  for (ptrdiff_t k = 0; k + 4 <= n; k += 4) {
    const int16_t second = patch[k + 1];
    patch[k + 1] = patch[k + 2];
    patch[k + 2] = second;
  }
}
static inline int32_t dot(const int16_t* patch, const i8* weights, ptrdiff_t n, int32_t a) {
  const ptrdiff_t whole = n / 4 * 4;
  ptrdiff_t k;
  for (k = 0; k < whole; k += 4) {
    const uint32_t word = (uint32_t)word_at(weights + k);
    a = __smlad(word_at(patch + k), __sxtb16((int8x4_t)word), a);
    a = __smlad(word_at(patch + k + 2), __sxtb16((int8x4_t)((word >> 8) | (word << 24))), a);
  }
  for (k = whole; k < n; ++k) a += patch[k] * weights[k];
  return a;
}
#else
static inline void pair_terms(int16_t* patch, ptrdiff_t n) {
  (void)patch;
  (void)n;
}
static inline int32_t dot(const int16_t* patch, const i8* weights, ptrdiff_t n, int32_t a) {
  for (ptrdiff_t k = 0; k < n; ++k) a += patch[k] * weights[k];
  return a;
}
#endif
)";

std::string print_linear(const plan::KernelQuery& query, Shared& shared) {
  const TensorSpec &x = query.inputs.at(kX), &w = query.inputs.at(kWeight), &y = query.outputs.at(0);
  const int last = x.shape.rank() - 1;
  const int64_t count = w.shape[1];
  const Int8 sums(query, shared);
  const bool patch = Int8::wants_patch(w, w.shape[0]);
  Lines lines;
  sums.declare(lines);
  if (patch) Int8::declare_patch(lines, count);
  std::vector<std::string> from, to;
  for (int axis = 0; axis < last; ++axis) {
    lines.loop(fmt::format("i{}", axis), x.shape[axis]);
    from.push_back(fmt::format("i{}", axis));
  }
  to = from;
  from.emplace_back("k");
  to.emplace_back("c");
  const std::string term = sums.term(offset(x.strides, from));
  const std::string weights = offset(w.strides, std::vector<std::string>{"c", patch ? "" : "k"});
  if (patch) {
    lines.loop("k", count);
    lines.add(fmt::format("patch[k] = (int16_t){};", term));
    lines.close();
    sums.close_patch(lines, count);
  }
  lines.loop("c", w.shape[0]);
  if (patch) {
    sums.dot(lines, weights, count, sums.begin("c"));
  } else {
    lines.add(fmt::format("int32_t a = {};", sums.begin("c")));
    lines.loop("k", count);
    lines.add(fmt::format("a += {} * x1[{}];", term, weights));
    lines.close();
  }
  sums.finish(lines, "c", "", offset(y.strides, to));
  lines.close_all();
  return lines.text();
}

}  // namespace

Int8::Int8(const plan::KernelQuery& query, Shared& shared)
    : query_(query), shared_(shared), fixed_(query.op.ends_with("_fixed")) {}

// Absent inputs have no shape; those that are given have at least one axis.
bool Int8::has(size_t input) const { return input < query_.inputs.size() && query_.inputs[input].shape.rank() > 0; }

std::string Int8::row(size_t input, const std::string& channel) const {
  return fmt::format("x{}[{} * {}]", input, channel, query_.inputs[input].strides[0]);
}

int64_t Int8::number(const char* name) const { return get_attr<int64_t>(query_.attrs, name); }

void Int8::declare(Lines& lines) const {
  if (!fixed_ && has(kZero)) lines.add("const i32 zero = x4[0];");
}

std::string Int8::term(const std::string& place) const {
  if (!fixed_) return has(kZero) ? fmt::format("(x0[{}] - zero)", place) : fmt::format("x0[{}]", place);
  const int64_t zero = number("x_zero");
  return zero == 0 ? fmt::format("x0[{}]", place) : fmt::format("(x0[{}] - ({}))", place, zero);
}

std::string Int8::begin(const std::string& channel) const { return fixed_ && has(kBias) ? row(kBias, channel) : "0"; }

bool Int8::wants_patch(const TensorSpec& weight, int64_t sums) {
  const int rank = weight.shape.rank();
  int64_t count = 1;
  for (int axis = rank - 1; axis > 0; --axis) {
    if (weight.shape[axis] != 1 && weight.strides[axis] != count) return false;
    count *= weight.shape[axis];
  }
  return sums >= kFewestSums && count >= kFewestSums && count <= kMostTerms;
}

void Int8::declare_patch(Lines& lines, int64_t count) { lines.add(fmt::format("int16_t patch[{}];", count)); }

void Int8::close_patch(Lines& lines, int64_t count) const {
  shared_.add("dot", kDot);
  lines.add(fmt::format("pair_terms(patch, {});", count));
}

void Int8::dot(Lines& lines, const std::string& weights, int64_t count, const std::string& begin) const {
  shared_.add("dot", kDot);
  lines.add(fmt::format("const int32_t a = dot(patch, x1 + {}, {}, {});", weights, count, begin));
}

void Int8::finish_fixed(Lines& lines, const std::string& channel, const std::string& place) const {
  const std::string scaled = shared_.of_integers("requantized_i");
  lines.add(fmt::format("const i64 r = {}(a, {}, {}) + ({});", scaled, row(kMultiplier, channel),
                        row(kExponent, channel), number("y_zero")));
  lines.add(fmt::format("y0[{}] = ({})(r < {} ? {} : (r > {} ? {} : r));", place,
                        memory_type(query_.outputs.at(0).dtype), number("low"), number("low"), number("high"),
                        number("high")));
}

void Int8::finish(Lines& lines, const std::string& channel, const std::string& residual,
                  const std::string& place) const {
  if (fixed_) return finish_fixed(lines, channel, place);
  const DType real = query_.inputs.at(kScale).dtype, dtype = query_.outputs.at(0).dtype;
  const char* const type = compute_type(real);
  lines.add(fmt::format("{0} r = ({0})a * {1};", type, row(kScale, channel)));
  if (has(kShift)) lines.add(fmt::format("r = r + {};", row(kShift, channel)));
  if (has(kResidual))
    lines.add(fmt::format("r = r + ({})x5[{}]{};", type, residual, has(kResidualScale) ? " * x6[0]" : ""));
  const auto apply = [&](const char* op) {
    lines.add(fmt::format("r = {}(r);", shared_.scalar(*find_scalar_op(op), real)));
  };
  if (get_attr<std::string>(query_.attrs, "activation") == "relu") apply("relu");
  if (!is_floating(dtype)) {
    apply("round");
    const bool is_signed = dtype == DType::kInt8;
    lines.add(fmt::format("r = r < {0} ? {0} : (r > {1} ? {1} : r);", is_signed ? -128 : 0, is_signed ? 127 : 255));
  }
  lines.add(fmt::format("y0[{}] = ({})r;", place, memory_type(dtype)));
}

void add_int8(Printers& printers) {
  printers["int8_linear"] = {.print = print_linear};
  printers["int8_linear_fixed"] = {.print = print_linear};
}

}  // namespace sluice::c
