// Every input of the corpus through its target, in the ordinary build: what fuzzing once found stays found.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

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

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// One of the seeds, with a few bytes changed, taken out, put in, or taken from another.
std::string mutant(std::minstd_rand& random, const std::vector<std::string>& seeds) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  std::string text = seeds[below(seeds.size())];
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = below(text.size() + 1);
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 1: text.erase(at, 1 + below(8)); break;
      case 2: text.insert(at, 1 + below(4), static_cast<char>(random())); break;
      case 3: {
        static const char* const kWords[] = {"\r\n", "-1", "99999999999999999999", "{", "]", "\xff\xff\xff\xff",
                                             ": ",   "\""};
        text.insert(at, kWords[below(std::size(kWords))]);
        break;
      }
      case 4: {
        const std::string& other = seeds[below(seeds.size())];
        text = text.substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
      default: text.insert(at, text.substr(below(text.size() + 1), 1 + below(40)));
    }
  }
  return text.substr(0, size_t{1} << 16);
}

class Corpus : public ::testing::TestWithParam<Target> {};

TEST_P(Corpus, RunsThroughItsTarget) {
  const std::vector<fs::path> files = inputs(GetParam().name);
  ASSERT_GE(files.size(), 3u);
  for (const fs::path& path : files) {
    SCOPED_TRACE(path.string());
    const std::string text = content_of(path);
    GetParam().run(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    // And each cut short.
    for (size_t n = 0; n < text.size(); n += 1 + text.size() / 16) {
      GetParam().run(reinterpret_cast<const uint8_t*>(text.data()), n);
    }
  }
  test::report_count(std::string("corpus of ") + GetParam().name, static_cast<int64_t>(files.size()), "files");
}

// Without libFuzzer, and always the same ones.
class SoakCorpus : public Corpus {};
TEST_P(SoakCorpus, MutantsRunThroughTheirTarget) {
  std::vector<std::string> seeds;
  for (const fs::path& path : inputs(GetParam().name)) seeds.push_back(content_of(path));
  const int64_t total = test::repetitions(1000, 50000);
  std::minstd_rand random(1);
  for (int64_t n = 0; n < total; ++n) {
    const std::string text = mutant(random, seeds);
    GetParam().run(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
  test::report_count(std::string("mutants of ") + GetParam().name, total, "inputs");
}

INSTANTIATE_TEST_SUITE_P(All, Corpus, ::testing::ValuesIn(kTargets),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(All, SoakCorpus, ::testing::ValuesIn(kTargets),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FindingDeathTest, EndsTheProcessAndSaysWhat) {
  EXPECT_DEATH(expect(false, "a wrong answer", "42"), "finding: a wrong answer\n42");
}

}  // namespace
}  // namespace sluice::fuzz
