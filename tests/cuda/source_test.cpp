// Tests generated sources as text; that the true compiler takes them, where it is at hand; and the cache of programs on
// disk.
#include "kernels/cuda/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/files/file.h"
#include "kernels/cuda/expressions.h"
#include "kernels/cuda/nvrtc.h"
#include "kernels/cuda/program.h"

namespace sluice::cuda {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

plan::KernelQuery query_of(const std::string& op, DType in, DType out, int inputs) {
  plan::KernelQuery query;
  query.op = op;
  const Shape shape{2, 3, 4, 5};
  query.inputs = {TensorSpec{in, shape, {60, 1, 15, 3}}, TensorSpec{in, {3, 1, 5}, {10, 5, 2}}};
  query.inputs.resize(static_cast<size_t>(inputs));
  query.outputs = {TensorSpec{out, shape, channels_last_strides(shape)}};
  if (op.starts_with("gelu")) query.attrs = {{"approximate", std::string("none")}};
  return query;
}

// The compiler's library, for a scope.
class WithNvrtc {
 public:
  explicit WithNvrtc(const char* library) { setenv("SLUICE_NVRTC", library, 1); }
  ~WithNvrtc() { setenv("SLUICE_NVRTC", FAKE_NVRTC, 1); }
};

// Without the parts that all sources share.
std::string own_part(const Source& source) { return source.text.substr(source.text.find("typedef i64 T;\n")); }

TEST(Source, IsALoopOverTheOutputInItsOrder) {
  const Source source = elementwise_source(query_of("remainder", DType::kInt16, DType::kInt16, 2));
  EXPECT_EQ(source.entry, "sluice_remainder");
  EXPECT_EQ(source.blocks, 1);
  EXPECT_NE(source.describe, nullptr);
  std::string expected = R"(typedef i64 T;
typedef T R;
__device__ inline R f(T a, T b) { return remainder_i(a, b); }
__device__ inline bool bad(T a, T b) { return b == 0; }
typedef i32 Index;
extern "C" __global__ void sluice_remainder(Failure* word, u64 ticket, const i16* in0, const i16* in1, i16* out) {
  if (failed(word, ticket)) return;
  for (Index i = (Index)first_index(); i < 120; i += (Index)index_step()) {
    Index rest = i / 3;
    const Index c = i % 3;
    const Index c1 = rest % 5;
    rest /= 5;
    const Index c0 = rest;
    const auto x0 = load(in0[c + c1 * 3 + c0 * 15]);
    const auto x1 = load(in1[c * 10 + c1 * 2]);
    if (bad(x0, x1)) {
      raise(word, ticket, NUMBER);
      continue;
    }
    store(out + (c + c1 * 3 + c0 * 15), f(x0, x1));
  }
}
)";
  // The number of the op, by which a failure finds its message.
  const std::string number = std::to_string(find_scalar_op("remainder") - scalar_ops().data());
  expected.replace(expected.find("NUMBER"), 6, number);
  EXPECT_EQ(own_part(source), expected);
  EXPECT_THAT(source.text, HasSubstr("i64 mod_i(i64 a, i64 b) { return b == -1 ? 0 : a % b; }\n"));
  EXPECT_THAT(source.text, Not(HasSubstr("floor_quotient_i")));  // what it does not call is not there
}

TEST(Source, RefusesWhatTheOpIsNotDefinedFor) {
  const auto told = [](const std::string& op, DType dtype, int inputs) -> std::string {
    try {
      elementwise_source(query_of(op, dtype, dtype, inputs));
      return "nothing";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(told("exp", DType::kInt32, 1), "exp: no cuda kernel for int32; cast it first");
  EXPECT_EQ(told("bitwise_and", DType::kFloat32, 2), "bitwise_and: no cuda kernel for float32; cast it first");
  EXPECT_EQ(told("add", DType::kFloat32, 1), "add: 1 inputs and 1 outputs; needs 2 and 1");
}

// Large tensors need 64-bit offsets.
TEST(Source, CountsInAsManyBitsAsItMust) {
  plan::KernelQuery query;
  query.op = "neg";
  for (const auto& [n, index] :
       {std::pair<int64_t, const char*>{1 << 20, "typedef i32 Index;"}, {int64_t{1} << 32, "typedef i64 Index;"}}) {
    query.inputs = query.outputs = {TensorSpec::contiguous({DType::kFloat32, {n}})};
    EXPECT_THAT(elementwise_source(query).text, HasSubstr(index));
  }
}

// Named by SLUICE_TEST_NVRTC, because most machines that build have none.
TEST(Source, EverySourceIsTakenByNvrtc) {
  const char* library = std::getenv("SLUICE_TEST_NVRTC");
  if (library == nullptr) GTEST_SKIP() << "SLUICE_TEST_NVRTC names no NVRTC";
  const WithNvrtc real(library);
  const Nvrtc compiler;
  int compiled = 0;
  for (const ScalarOp& op : scalar_ops()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64, DType::kInt32}) {
      if (expression_text(op, dtype) == nullptr) continue;
      plan::KernelQuery query = query_of(op.name, dtype, op.gives_bool ? DType::kBool : dtype, op.inputs);
      if (*op.mode != '\0') query.attrs = {{"approximate", std::string(op.mode)}};
      const Source source = elementwise_source(query);
      for (const char* arch : {"sm_90", "sm_75", "sm_100"}) {
        if (dtype != DType::kFloat32 && arch != std::string("sm_90")) continue;
        EXPECT_GT(compiler.compile(source.entry, source.text, arch).size(), 1000u) << op.name;
        ++compiled;
      }
    }
  }
  EXPECT_GT(compiled, 400);
}

class Cache : public testing::Test {
 protected:
  Cache() {
    setenv("SLUICE_NVRTC", FAKE_NVRTC, 1);
    fs::remove_all(directory);
  }
  ~Cache() override { fs::remove_all(directory); }
  std::vector<fs::path> entries() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(directory)) all.push_back(entry.path());
    return all;
  }
  const std::string directory = testing::TempDir() + fmt::format("sluice_programs_{}", ::getpid());
  const std::string source = "extern \"C\" __global__ void k(int* out) { *out = 1; }\n";
};

TEST_F(Cache, CompilesOnceForEachSourceAndArchitecture) {
  ProgramCache first(directory), second(directory);
  const auto made = first.get("k", source, "sm_90");
  EXPECT_EQ(second.get("k", source, "sm_90")->image, made->image);
  EXPECT_EQ(first.stats().compiled, 1);
  EXPECT_EQ(second.stats().compiled, 0);
  EXPECT_EQ(second.stats().loaded, 1);
  second.get("k", source, "sm_80");
  second.get("k", source + "// other\n", "sm_90");
  EXPECT_EQ(second.stats().compiled, 2);
  EXPECT_EQ(entries().size(), 3u);
}

TEST_F(Cache, IgnoresAndReplacesWhatIsNotRight) {
  ProgramCache(directory).get("k", source, "sm_90");
  const fs::path entry = entries().at(0);
  const std::string good = read_file(entry);
  std::string flipped = good, other = good;
  flipped[good.size() - 10] ^= 1;
  other[20] ^= 1;  // of another key
  for (const std::string& bad : {std::string(), good.substr(0, 10), good.substr(0, good.size() - 1), flipped, other}) {
    std::ofstream(entry, std::ios::binary) << bad;
    ProgramCache cache(directory);
    const std::string image = cache.get("k", source, "sm_90")->image;
    EXPECT_EQ(cache.stats().ignored, 1);
    EXPECT_EQ(cache.stats().compiled, 1);
    ProgramCache again(directory);
    EXPECT_EQ(again.get("k", source, "sm_90")->image, image);
    EXPECT_EQ(again.stats().loaded, 1);
  }
}

TEST_F(Cache, WorksWithoutADirectoryToWriteTo) {
  std::ofstream(directory) << "a file";
  ProgramCache cache(directory);
  EXPECT_FALSE(cache.get("k", source, "sm_90")->image.empty());
  EXPECT_FALSE(ProgramCache("").get("k", source, "sm_90")->image.empty());
}

TEST_F(Cache, TellsWhatTheCompilerSays) {
  ProgramCache cache(directory);
  try {
    cache.get("k", "extern \"C\" __global__ void k(int* out) { *out = nowhere; }\n", "sm_90");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    EXPECT_THAT(error.what(),
                testing::AllOf(HasSubstr("NVRTC: k for sm_90: NVRTC_ERROR_COMPILATION: "), HasSubstr("nowhere")));
  }
  EXPECT_FALSE(fs::exists(directory));
}

TEST(Nvrtc, IsMissedByName) {
  const WithNvrtc none("/nowhere/libnvrtc.so");
  try {
    Nvrtc missing;
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_STREQ(
        error.what(),
        "NVRTC, which compiles kernels for the GPU, could not be loaded: /nowhere/libnvrtc.so: cannot open shared "
        "object file: No such file or directory; install CUDA 13's, or name it in SLUICE_NVRTC");
  }
}

}  // namespace
}  // namespace sluice::cuda
