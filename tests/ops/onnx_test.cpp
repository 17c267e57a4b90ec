// Ops as models of ONNX: every sample of every op is exported and read again, and computes the same then. What has no
// form in ONNX is known by name. With SLUICE_ONNX_SAMPLES=FOLDER the models stay there, beside their inputs and
// results.
#ifdef SLUICE_HAS_ONNX
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "graph/tape.h"
#include "onnx/export/export.h"
#include "onnx/model.h"
#include "ops/op_cases.h"
#include "tensor/random.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

// ONNX has no functions like these, or not for these operands: what is special, complex, factored, decoded or repeated.
constexpr const char* kNoForm =
    "avg_pool_backward bessel_j0 bessel_j1 bessel_y0 bessel_y1 bitwise_left_shift bitwise_right_shift "
    "decode_image decode_jpeg digamma erfcx erfinv fourier fourier_hermitian fourier_real gcd i0 i0e i1 i1e "
    "igamma igammac int8_conv_fixed int8_linear_fixed lcm lgamma linalg_cholesky linalg_eig linalg_eigh "
    "linalg_ldl linalg_ldl_solve linalg_lu linalg_matrix_exp linalg_permutation linalg_qr linalg_solve "
    "linalg_solve_triangular linalg_svd linear_recurrence log_ndtr loop modified_bessel_k0 modified_bessel_k1 "
    "ndtri nextafter numbers_of_keys pack_files polygamma requantize running_argmax running_argmin sample_order "
    "scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 view_as_complex view_as_dtype "
    "view_as_real zeta ";

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

CapturedGraph traced(EagerExecutor& eager, const Drawn& drawn) {
  TraceScope trace(eager, "sample");
  std::vector<Value> inputs;
  for (size_t i = 0; i < drawn.inputs.size(); ++i) {
    inputs.emplace_back();
    if (drawn.inputs[i].defined()) inputs[i] = trace.add_input(fmt::format("i{}", i), drawn.inputs[i].type());
  }
  std::vector<std::pair<std::string, Value>> outputs;
  for (const Value& v : drawn.run(inputs)) outputs.emplace_back(fmt::format("o{}", outputs.size()), v);
  return trace.finish(outputs);
}

void write(const fs::path& path, const Value& value) {
  const std::vector<char> bytes = to_bytes(value);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::vector<Value> read_again(const std::string& path, const Drawn& drawn) {
  const onnx::Model model = onnx::Model::load(path);
  std::vector<onnx::Item> inputs;
  for (const Value& v : drawn.inputs)
    if (v.defined()) inputs.emplace_back(v);
  std::vector<Value> parameters;
  for (const auto& [name, tensor] : model.parameters()) parameters.emplace_back(tensor);
  Generator generator(0);
  std::vector<Value> outputs;
  for (const onnx::Item& item : model.run(inputs, parameters, generator)) outputs.push_back(item.tensor);
  return outputs;
}

TEST(OpsInOnnx, ComputeTheSameWhenTheyAreReadAgain) {
  EagerExecutor& eager = test_eager();
  const ExecutorScope scope(eager);
  const GradMode off(false);
  const char* const kept = std::getenv("SLUICE_ONNX_SAMPLES");
  const fs::path where =
      kept != nullptr ? fs::path(kept) : fs::temp_directory_path() / fmt::format("onnx_{}", getpid());
  fs::create_directories(where);
  std::set<std::string> exported;
  std::map<std::string, std::string> refused;
  size_t samples = 0;
  for (const OpDef* const op : all_ops()) {
    if (op->random || op->host || op->effectful) continue;
    for (size_t s = 0; s < op->samples.size(); ++s) {
      const Drawn drawn = draw(*op, s);
      const std::string name = fmt::format("{}.{}", op->name, s), path = (where / name).string() + ".onnx";
      try {
        const CapturedGraph graph = traced(eager, drawn);
        onnx::export_model({&graph}, {}, path, false);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kUnsupported) << name << ": " << error.what();
        refused.emplace(op->name, error.what());
        continue;
      }
      const std::vector<Value> expected = drawn.run();
      const std::string label = fmt::format("{}, {}", op->name, drawn.label);
      try {
        expect_close(read_again(path, drawn), expected, DType::kFloat32, 64, label);
      } catch (const Error& error) {
        ADD_FAILURE() << label << ": " << error.what();
      }
      exported.insert(op->name);
      ++samples;
      if (kept == nullptr) continue;
      for (size_t i = 0; i < drawn.inputs.size(); ++i)
        if (drawn.inputs[i].defined()) write(where / fmt::format("{}.i{}", name, i), drawn.inputs[i]);
      for (size_t o = 0; o < expected.size(); ++o) write(where / fmt::format("{}.o{}", name, o), expected[o]);
    }
  }
  if (kept == nullptr) fs::remove_all(where);
  std::set<std::string> never;
  for (const auto& [name, why] : refused) {
    if (!exported.contains(name)) never.insert(name);
    printf("%s: %s: %s\n", exported.contains(name) ? "refused in part" : "refused", name.c_str(), why.c_str());
  }
  EXPECT_EQ(never, words(kNoForm));
  printf("count: ops as ONNX: %zu of %zu, %zu samples\n", exported.size(), exported.size() + never.size(), samples);
}

}  // namespace
}  // namespace sluice::test
#endif
