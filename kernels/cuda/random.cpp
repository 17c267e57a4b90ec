// uniform, normal, bernoulli, randint, dropout: element i in row-major order takes word i of its call's Philox stream,
// as on the cpu (kernels/cpu/random/philox.h).
#include <cmath>

#include "kernels/cuda/families.h"

namespace sluice::cuda {
namespace {

constexpr const char* kPhilox = R"(
__device__ inline u32 word_at(const i64* state, u32 lane, u64 i) {
  const u64 counter = i / 64 * 16 + i % 16, at = (u64)state[1];
  const u32 high = (u32)(kSalt >> 32) * 0x9E3779B9u ^ (u32)(at >> 32) * 0x85EBCA6Bu ^ lane * 0xC2B2AE35u;
  u32 c0 = (u32)counter, c1 = (u32)(counter >> 32) ^ high, c2 = (u32)kSalt, c3 = (u32)at;
  u32 k0 = (u32)(u64)state[0], k1 = (u32)((u64)state[0] >> 32);
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
    const u32 n0 = (u32)(p1 >> 32) ^ c1 ^ k0, n2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c0 = n0;
    c1 = (u32)p1;
    c2 = n2;
    c3 = (u32)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const u32 which = (u32)(i / 16 % 4);
  return which == 0 ? c0 : which == 1 ? c1 : which == 2 ? c2 : c3;
}
)";

// The body has the element's number i.
Generated made(const plan::KernelQuery& query, DType computed, const std::string& body) {
  const TensorSpec& out = query.outputs[0];
  Writer writer(query);
  writer.compute(computed);
  writer.add(
      fmt::format("constexpr u64 kSalt = {}ULL;\n", static_cast<uint64_t>(get_attr<int64_t>(query.attrs, "salt"))));
  writer.add(kPhilox + index_function("to", out.shape, out.strides));
  if (query.inputs.size() > 1) writer.add(index_function("from", out.shape, query.inputs[1].strides));
  Source source = writer.each("", numel(out.shape), body);
  source.contract = false;  // as on the cpu
  return {{std::move(source)}};
}

DType computed_in(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

Generated uniform(const plan::KernelQuery& query) {
  const DType dtype = query.outputs[0].dtype;
  const double low = get_attr<double>(query.attrs, "low"), high = get_attr<double>(query.attrs, "high");
  const int bits = dtype == DType::kBFloat16 ? 8 : dtype == DType::kFloat16 ? 11 : 24;
  const std::string unit =
      dtype == DType::kFloat64
          ? "(C)((((u64)word_at(in0, 0, i) << 32) | word_at(in0, 1, i)) >> 11) * (C)1.1102230246251565e-16"
          : fmt::format("(C)(i32)(word_at(in0, 0, i) >> {}) * (C){}", 32 - bits, number_text(std::ldexp(1.0, -bits)));
  return made(
      query, computed_in(dtype),
      fmt::format("    store(out0 + to(i), (C){} + {} * (C){});\n", number_text(low), unit, number_text(high - low)));
}

Generated normal(const plan::KernelQuery& query) {
  return made(query, computed_in(query.outputs[0].dtype),
              fmt::format(R"(    const C u = ((C)(word_at(in0, 0, i / 2) >> 8) + 1) * (C)5.9604644775390625e-8;
    const C angle = (C)(word_at(in0, 1, i / 2) >> 8) * (C)5.9604644775390625e-8 * (C)6.283185307179586;
    const C radius = sqrt((C)-2 * log(u));
    store(out0 + to(i), (C){} + (C){} * radius * (i % 2 ? sin(angle) : cos(angle)));
)",
                          number_text(get_attr<double>(query.attrs, "mean")),
                          number_text(get_attr<double>(query.attrs, "std"))));
}

// "true" for an element with probability p.
std::string chosen(double p) {
  return fmt::format("word_at(in0, 0, i) < {}ULL", static_cast<uint64_t>(std::llround(p * 0x1p32)));
}

Generated bernoulli(const plan::KernelQuery& query) {
  return made(query, DType::kFloat32,
              fmt::format("    store(out0 + to(i), {} ? (C)1 : (C)0);\n", chosen(get_attr<double>(query.attrs, "p"))));
}

Generated randint(const plan::KernelQuery& query) {
  const int64_t low = get_attr<int64_t>(query.attrs, "low"), high = get_attr<int64_t>(query.attrs, "high");
  return made(query, DType::kInt64,
              fmt::format(R"(    const u64 all = ((u64)word_at(in0, 0, i) << 32) | word_at(in0, 1, i);
    store(out0 + to(i), (i64)((u64)({}LL) + __umul64hi(all, {}ULL)));
)",
                          low, static_cast<uint64_t>(high) - static_cast<uint64_t>(low)));
}

Generated dropout(const plan::KernelQuery& query) {
  const double p = get_attr<double>(query.attrs, "p");
  return made(query, computed_in(query.inputs[1].dtype),
              fmt::format("    store(out0 + to(i), load(in1[from(i)]) * ({} ? (C)1 : (C)0) * (C){});\n", chosen(1 - p),
                          number_text(p < 1 ? 1 / (1 - p) : 0)));
}

}  // namespace

const char* philox_functions() { return kPhilox; }

void add_random_kernels(KernelTable& table) {
  add_generated(table, "uniform", uniform);
  add_generated(table, "normal", normal);
  add_generated(table, "bernoulli", bernoulli);
  add_generated(table, "randint", randint);
  add_generated(table, "dropout", dropout);
}

}  // namespace sluice::cuda
