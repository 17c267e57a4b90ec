// Bundles in tar archives, on disk and in memory, and weights from elsewhere.
#include "runtime/bundle/archive.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "include/sluice/sluice.h"
#include "include/sluice/sluice.hpp"
#include "runtime/bundle_fixture.h"
#include "support/what_of.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

// An entry as tar writes it: a header and whole blocks of content.
std::string entry(const std::string& name, const std::string& content, char kind = '0') {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name);
  put(100, "0000644");
  put(124, fmt::format("{:011o}", content.size()));
  put(148, "        ");
  header[156] = kind;
  put(257, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  std::string all = header + content;
  all.resize((all.size() + 511) / 512 * 512, '\0');
  return all;
}

std::string end() { return std::string(1024, '\0'); }

std::string error_of_archive(const std::string& bytes) {
  return what_of([&] { read_archive("a.tar", std::as_bytes(std::span(bytes))); });
}

TEST(Archive, FilesAreFoundWhereTheyLie) {
  const std::string bytes = entry("./", "", '5') + entry("./a.txt", "12345") + entry("b/", "", '5') +
                            entry("b/c", std::string(600, 'x')) + entry("extended", "14 mtime=1.5\n", 'x') +
                            entry("empty", "") + end();
  const auto files = read_archive("a.tar", std::as_bytes(std::span(bytes)));
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(std::memcmp(files.at("a.txt").data(), "12345", 5), 0);
  EXPECT_EQ(files.at("b/c").size(), 600u);
  EXPECT_EQ(files.at("empty").size(), 0u);
  EXPECT_EQ((files.at("b/c").data() - std::as_bytes(std::span(bytes)).data()) % 512, 0);
}

TEST(Archive, WhatIsNoneIsRefused) {
  EXPECT_THAT(error_of_archive("short"), HasSubstr("a.tar: 5 bytes; a tar archive has at least 512"));
  EXPECT_THAT(error_of_archive(std::string(2048, 'x')), HasSubstr("no tar archive, or one that is damaged"));
  std::string damaged = entry("a", "1");
  damaged[0] = 'b';
  EXPECT_THAT(error_of_archive(damaged), HasSubstr("no tar archive, or one that is damaged"));
  EXPECT_THAT(error_of_archive(entry("a", std::string(2000, 'x')).substr(0, 1024)), HasSubstr("it is truncated"));
  EXPECT_THAT(error_of_archive(entry("a", "1") + entry("./a", "2")), HasSubstr("it holds 'a' twice"));
  EXPECT_THAT(error_of_archive(entry("../a", "1")), HasSubstr("names must be of files in its folder"));
  EXPECT_THAT(error_of_archive(entry("/etc/a", "1")), HasSubstr("names must be of files in its folder"));
  EXPECT_THAT(error_of_archive(entry("a", "", '2')), HasSubstr("'a' is of type '2'; it must hold files only"));
  EXPECT_THAT(error_of_archive(entry("x", "20 path=other\n", 'x')), HasSubstr("pack it with tar --format=ustar"));
}

TEST(Archive, NoMutantIsReadBeyondItsEnd) {
  const std::string whole = entry("plan.json", "{}") + entry("b/c", std::string(600, 'x')) + end();
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string mutant = whole;
    mutant[i] = static_cast<char>(mutant[i] ^ 0x91);
    try {
      for (const auto& [name, content] : read_archive("a.tar", std::as_bytes(std::span(mutant)))) {
        EXPECT_GE(content.data(), std::as_bytes(std::span(mutant)).data());
        EXPECT_LE(content.data() + content.size(), std::as_bytes(std::span(mutant)).data() + mutant.size());
      }
    } catch (const Error&) {
    }
  }
}

class Packed : public ::testing::Test {
 protected:
  Packed() { save_bundle(folder_.path(), {plain_plan(), "graph text\n", {{"w", weights()}}, {{"by", "test"}}}); }
  // Weights of 64 bytes, so that they can be used where they lie.
  static BundleTensor weights() {
    BundleTensor w = tensor(Floats(16));
    std::copy_n(std::vector<float>{1, 2, 3, 4}.begin(), 4, static_cast<float*>(w.storage->data()));
    w.spec = PlanBuilder::f32({kN});
    return w;
  }
  std::string file(const std::string& name) const {
    std::ifstream in(folder_.path() + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string archive(const std::string& in = "", bool with_weights = true) const {
    std::string all;
    for (const char* name : {kMetaFile, kPlanFile, kWeightsFile, kGraphFile})
      if (with_weights || name != kWeightsFile) all += entry(in + name, file(name));
    return all + end();
  }
  // At a multiple of 64 bytes, and so many bytes beyond.
  static std::shared_ptr<const void> memory(const std::string& bytes, size_t beyond = 0) {
    auto* const block = static_cast<char*>(std::aligned_alloc(64, (bytes.size() + beyond + 127) / 64 * 64));
    std::memcpy(block + beyond, bytes.data(), bytes.size());
    return {block + beyond, [block](const void*) { std::free(block); }};
  }
  void expect_results(api::Session& session, const Floats& w = {1, 2, 3, 4}) {
    const std::vector<api::Tensor> y = session.run({api::Tensor::from<float>(filled(5), {kN})});
    EXPECT_EQ(Floats(y[0].data<float>(), y[0].data<float>() + kN), filled(5));
    EXPECT_EQ(Floats(y[1].data<float>(), y[1].data<float>() + kN), w);
  }
  const TestFolder folder_{"sluice_packed_"};
  api::Engine engine_{{.cores = 1}};
};

TEST_F(Packed, RunsFromMemory) {
  const std::string bytes = archive();
  for (const size_t beyond : {0, 1}) {
    api::Session session = api::Session::load(engine_, memory(bytes, beyond), bytes.size());
    expect_results(session);
  }
  const std::string in_folder = archive("out/net/");
  api::Session session = api::Session::load(engine_, memory(in_folder), in_folder.size());
  expect_results(session);
  EXPECT_EQ(api::Plan::load(bytes.data(), bytes.size()).inputs()[0].str(), "x: float32(4,)");
}

TEST_F(Packed, RunsFromAFile) {
  const std::string path = folder_.path() + "/net.tar";
  std::ofstream(path, std::ios::binary) << archive();
  api::Session session = api::Session::load(engine_, path);
  expect_results(session);
  EXPECT_EQ(api::Plan::load(path).name(), "plain");
}

TEST_F(Packed, ErrorsNameTheFile) {
  const auto error = [&](const std::string& bytes) {
    return what_of([&] { api::Session::load(engine_, memory(bytes), bytes.size()); });
  };
  EXPECT_THAT(error(entry("other", "1") + end()), HasSubstr("bundle in memory': the archive has no plan.json"));
  EXPECT_THAT(error(entry("plan.json", "{") + end()), HasSubstr("bundle in memory/plan.json"));
  EXPECT_THAT(error(archive("", false)), HasSubstr("bundle in memory/weights.safetensors: cannot be read"));
  EXPECT_THAT(what_of([&] { api::Session::load(engine_, nullptr, 0); }), HasSubstr("no memory: null"));
  const std::string path = folder_.path() + "/net.tar";
  std::ofstream(path, std::ios::binary) << std::string(600, 'x');
  EXPECT_THAT(what_of([&] { api::Session::load(engine_, path); }),
              HasSubstr("net.tar': a file that is no tar archive"));
}

TEST_F(Packed, WeightsMayComeFromElsewhere) {
  const std::string bytes = archive("", false);
  const std::vector<api::NamedTensor> given = {{"w", api::Tensor::from<float>({9, 8, 7, 6}, {kN})}};
  api::Session session = api::Session::load(engine_, memory(bytes), bytes.size(), {.weights = given});
  expect_results(session, {9, 8, 7, 6});
  api::Session instead = api::Session::load(engine_, folder_.path(), {.weights = given});
  expect_results(instead, {9, 8, 7, 6});
  EXPECT_THAT(what_of([&] {
                api::Session::load(engine_, folder_.path(), {.weights = {{"v", given[0].tensor}}});
              }),
              HasSubstr("weight 'v' is given; no variable of the plan has this name"));
  EXPECT_THAT(what_of([&] {
                api::Session::load(engine_, folder_.path(), {.weights = {{"w", api::Tensor(api::DType::kInt8, {kN})}}});
              }),
              HasSubstr("variable 'w' is int8(4,) in the weights; the plan needs float32(4,)"));
}

// Weights of whole units of 64 bytes stay in the archive, which is kept for them and for no longer.
TEST_F(Packed, WeightsAreUsedWhereTheyLie) {
  Plans b("weighted");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int w = b.variable("w", {16}, true);
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 64}),
            y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 64});
  b.run(net, "add", {b.of_reg(x, {16}), b.of_variable(w, {16})}, {b.of_reg(y, {16})});
  b.input("x", x, b.f32({16}));
  b.output("y", b.of_reg(y, {16}));
  save_bundle(folder_.path(), {b.build(), "graph text\n", {{"w", tensor(Floats(16, 2))}}, {}});
  const std::string bytes = archive();
  for (const size_t beyond : {0, 4}) {
    std::shared_ptr<const void> memory = Packed::memory(bytes, beyond);
    const std::weak_ptr<const void> watched = memory;
    {
      api::Session session = api::Session::load(engine_, std::move(memory), bytes.size());
      EXPECT_EQ(watched.expired(), beyond != 0) << "what lies elsewhere is copied";
      EXPECT_EQ(session.run({api::Tensor::from<float>(Floats(16, 1), {16})})[0].data<float>()[15], 3);
    }
    EXPECT_TRUE(watched.expired());
  }
}

// Steps write to a copy: the caller's memory stays as it is.
TEST_F(Packed, AVariableThatStepsWriteIsNotTheCallers) {
  Plans b("counting");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int w = b.variable("w", {16});
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 64}),
            y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 64});
  b.run(net, "add", {b.of_reg(x, {16}), b.of_variable(w, {16})}, {b.of_reg(y, {16})});
  b.run(net, "copy", {b.of_reg(x, {16})}, {b.of_variable(w, {16})});
  b.input("x", x, b.f32({16}));
  b.output("y", b.of_reg(y, {16}));
  save_bundle(folder_.path(), {b.build(), "graph text\n", {{"w", tensor(Floats(16, 2))}}, {}});
  const std::string bytes = archive();
  const std::shared_ptr<const void> memory = Packed::memory(bytes);
  const api::Tensor given = api::Tensor::from<float>(Floats(16, 3), {16}),
                    ones = api::Tensor::from<float>(Floats(16, 1), {16});
  for (const bool mine : {false, true}) {
    api::SessionOptions options;
    if (mine) options.weights = {{"w", given}};
    api::Session session = api::Session::load(engine_, memory, bytes.size(), std::move(options));
    EXPECT_EQ(session.run({ones})[0].data<float>()[0], mine ? 4 : 3);
    EXPECT_EQ(session.run({ones})[0].data<float>()[0], 2);
  }
  EXPECT_EQ(given.data<float>()[0], 3);
  EXPECT_EQ(std::memcmp(memory.get(), bytes.data(), bytes.size()), 0);
}

TEST_F(Packed, InCTheMemoryIsReleasedOnceLoadedAndNotNeeded) {
  const std::string bytes = archive();
  const std::shared_ptr<const void> kept = memory(bytes);
  int released = 0;
  const auto release = [](void* context) { ++*static_cast<int*>(context); };
  sluice_engine* engine = nullptr;
  sluice_session* session = nullptr;
  ASSERT_EQ(sluice_engine_create(nullptr, &engine), nullptr);
  sluice_status* status = sluice_session_load_memory(engine, kept.get(), 100, release, &released, nullptr, &session);
  EXPECT_THAT(sluice_status_message(status), HasSubstr("100 bytes; a tar archive has at least 512"));
  sluice_status_destroy(status);
  EXPECT_EQ(released, 0);
  const float values[] = {5, 6, 7, 8};
  const int64_t shape[] = {kN};
  const char* const names[] = {"w"};
  sluice_tensor *w = nullptr, *outputs[2] = {};
  ASSERT_EQ(sluice_tensor_from_data(SLUICE_FLOAT32, shape, 1, values, sizeof values, &w), nullptr);
  sluice_session_options options = SLUICE_SESSION_OPTIONS_INIT;
  options.weight_names = names;
  options.weights = &w;
  options.num_weights = 1;
  const char* roots[] = {"train", "/srv/train", "", nullptr};
  options.data_roots = roots;
  for (const auto& [pairs, why] : {std::pair{size_t{1}, "data_roots: plan 'plain' opens no files; must be none"},
                                   std::pair{size_t{2}, "a folder of data_roots"}}) {
    options.num_data_roots = pairs;
    status = sluice_session_load_memory(engine, kept.get(), bytes.size(), nullptr, nullptr, &options, &session);
    EXPECT_THAT(sluice_status_message(status), HasSubstr(why));
    sluice_status_destroy(status);
  }
  options.num_data_roots = 0;
  ASSERT_EQ(sluice_session_load_memory(engine, kept.get(), bytes.size(), release, &released, &options, &session),
            nullptr);
  EXPECT_EQ(released, 1) << "its weights were replaced, so that nothing of it is used";
  ASSERT_EQ(sluice_session_run(session, &w, 1, outputs, 2), nullptr);
  EXPECT_EQ(static_cast<float*>(sluice_tensor_data(outputs[1]))[3], 8);
  sluice_plan* plan = nullptr;
  ASSERT_EQ(sluice_plan_load_memory(kept.get(), bytes.size(), &plan), nullptr);
  EXPECT_STREQ(sluice_plan_name(plan), "plain");
  sluice_plan_destroy(plan);
  for (sluice_tensor* output : outputs) sluice_tensor_destroy(output);
  sluice_tensor_destroy(w);
  sluice_session_destroy(session);
  sluice_engine_destroy(engine);
}

}  // namespace
}  // namespace sluice::test
