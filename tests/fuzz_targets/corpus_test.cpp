// Every input of the corpus through its target, in the ordinary build: what fuzzing once found stays found.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz_targets/targets.h"
#include "support/soak.h"

namespace sluice::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> inputs(const std::string& target) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(SLUICE_SOURCE_DIR "/tests/fuzz_targets/corpus") / target)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Corpus : public ::testing::TestWithParam<Target> {};

TEST_P(Corpus, RunsThroughItsTarget) {
  const std::vector<fs::path> files = inputs(GetParam().name);
  ASSERT_GE(files.size(), 3u);
  for (const fs::path& path : files) {
    SCOPED_TRACE(path.string());
    std::ifstream in(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    GetParam().run(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    // And each cut short.
    for (size_t n = 0; n < text.size(); n += 1 + text.size() / 16) {
      GetParam().run(reinterpret_cast<const uint8_t*>(text.data()), n);
    }
  }
  test::report_count(std::string("corpus of ") + GetParam().name, static_cast<int64_t>(files.size()), "files");
}

INSTANTIATE_TEST_SUITE_P(All, Corpus, ::testing::ValuesIn(kTargets),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FindingDeathTest, EndsTheProcessAndSaysWhat) {
  EXPECT_DEATH(expect(false, "a wrong answer", "42"), "finding: a wrong answer\n42");
}

}  // namespace
}  // namespace sluice::fuzz
