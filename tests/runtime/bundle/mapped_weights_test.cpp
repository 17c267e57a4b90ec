// Weights as pages of their file: shared by processes and sessions, never written to, and what happens when they go.
#include <sys/mman.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/files/mapped_file.h"
#include "runtime/bundle/safetensors.h"
#include "runtime/wide_plan.h"
#include "support/processes.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

// The kernel's numbers of this process's pages of a file.
struct Mapped {
  int mappings = 0;
  uint64_t shared = 0, own = 0;  // resident bytes that other processes have too; that none has
};

Mapped mapped_of(const std::string& path) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string real = fs::canonical(path).string();
  Mapped mapped;
  bool of_path = false;
  for (std::string line; std::getline(smaps, line);) {
    const std::string field = line.substr(0, line.find(' '));
    if (!field.ends_with(':')) {
      of_path = line.ends_with(real);
      mapped.mappings += of_path;
    } else if (of_path && field.starts_with("Shared_") && !field.starts_with("Shared_H")) {
      mapped.shared += std::stoull(line.substr(field.size())) * 1024;
    } else if (of_path && field.starts_with("Private_") && !field.starts_with("Private_H")) {
      mapped.own += std::stoull(line.substr(field.size())) * 1024;
    }
  }
  return mapped;
}

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Meets the other processes that have it.
class MeetingPlace {
 public:
  MeetingPlace()
      : arrived_(static_cast<std::atomic<int>*>(
            ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~MeetingPlace() { ::munmap(arrived_, sizeof(std::atomic<int>)); }
  void wait_for(int n) {
    ++*arrived_;
    while (*arrived_ < n) std::this_thread::yield();
  }

 private:
  std::atomic<int>* const arrived_;
};

class MappedWeights : public ::testing::Test {
 protected:
  static constexpr int64_t kLong = 1 << 20;  // elements: 4 MiB
  const std::string& save(const WidePlan& options = {kLong}, float w = 3) {
    save_wide(folder_.path(), options, w);
    return folder_.path();
  }
  std::string weights() const { return folder_.path() + "/" + kWeightsFile; }
  const TestFolder folder_{"sluice_mapped_"};
};

TEST_F(MappedWeights, TwoProcessesShareThem) {
  const std::string dir = save();
  MeetingPlace loaded, measured;
  const std::vector<int> codes = in_processes(2, [&](int rank) {
    Engine engine({.cores = 1});
    Session session = load_session(engine, dir);
    const bool right = result(submit(session, filled(static_cast<float>(rank)))) == filled(3.0f + rank);
    loaded.wait_for(2);
    const Mapped mapped = mapped_of(weights());
    measured.wait_for(2);
    constexpr uint64_t kBytes = kLong * sizeof(float);
    if (!right || mapped.shared < kBytes || mapped.own != 0)
      std::fprintf(stderr, "rank %d: %d bytes shared, %d not\n", rank, int(mapped.shared), int(mapped.own));
    return right ? mapped.shared < kBytes || mapped.own != 0 ? 2 : 0 : 1;
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST_F(MappedWeights, SessionsOfOneEngineHaveOneMapping) {
  const std::string dir = save();
  Engine engine({.cores = 1});
  Session first = load_session(engine, dir), second = load_session(engine, dir);
  EXPECT_EQ(mapped_of(weights()).mappings, 1);
  for (Session* session : {&first, &second}) {
    EXPECT_EQ(result(submit(*session, filled(1))), filled(4));
    EXPECT_EQ(session->memory().spaces[0].mapped, kLong * sizeof(float));
    EXPECT_EQ(session->memory().spaces[0].variables, kLong * sizeof(float));
    EXPECT_EQ(session->stats().mapped, kLong * sizeof(float));
    EXPECT_THAT(session->stats().str(), HasSubstr(", 4194304 of them mapped\n"));
  }
  first = Session();
  EXPECT_EQ(result(submit(second, filled(2))), filled(5));
  second = Session();
  EXPECT_EQ(mapped_of(weights()).mappings, 0);
}

TEST_F(MappedWeights, WhatStepsWriteIsCopied) {
  const std::string dir = save({kLong, true});
  const std::string before = content(weights());
  Engine engine({.cores = 1});
  const uint64_t held = engine.allocator_stats({}).current_bytes;
  {
    Session session = load_session(engine, dir), other = load_session(engine, dir);
    const uint64_t of_session = (engine.allocator_stats({}).current_bytes - held) / 2;
    EXPECT_EQ(of_session, session.memory().spaces[0].arenas + kLong * sizeof(float));
    EXPECT_EQ(session.memory().spaces[0].mapped, kLong * sizeof(float));
    EXPECT_EQ(session.memory().spaces[0].variables, 2 * kLong * sizeof(float));
    // Its steps add what the last one has left: 0 at first, as each session has its own.
    for (Session* s : {&session, &other}) {
      EXPECT_EQ(result(submit(*s, filled(1))), filled(4));
      EXPECT_EQ(result(submit(*s, filled(2))), filled(6));
    }
  }
  EXPECT_TRUE(content(weights()) == before);
  Session again = load_session(engine, dir);
  EXPECT_EQ(result(submit(again, filled(1))), filled(4));
}

TEST_F(MappedWeights, WritingToThemLeavesTheFileAlone) {
  save();
  const std::string before = content(weights());
  const Bundle bundle = load_bundle(folder_.path()), other = load_bundle(folder_.path());
  const BundleTensor& w = bundle.weights.at("w");
  ASSERT_NE(w.storage->file(), nullptr);
  std::memset(w.storage->data(), 7, w.storage->bytes());
  EXPECT_TRUE(content(weights()) == before);
  EXPECT_EQ(static_cast<const float*>(other.weights.at("w").storage->data())[0], 3);
}

TEST_F(MappedWeights, WholeUnitsAreMappedAndTheRestIsCopied) {
  std::map<std::string, BundleTensor> tensors;
  for (const int64_t n : {3, 16, 5, 0, 4096, 17, 1, 32}) tensors[std::to_string(n)] = tensor(Floats(n, float(n)));
  fs::create_directories(folder_.path());
  const std::string path = weights();
  const auto check = [&](const std::set<std::string>& expected) {
    const auto read = read_safetensors(path, make_host_allocator(), sluice::Links::kRefuse, Pages::kMap);
    EXPECT_EQ(read.size(), tensors.size());
    std::set<std::string> mapped;
    for (const auto& [name, t] : read) {
      const Floats values(static_cast<const float*>(t.storage->data()),
                          static_cast<const float*>(t.storage->data()) + numel(t.spec.shape));
      EXPECT_EQ(values, Floats(std::stoul(name), std::stof(name)));
      if (t.storage->file() != nullptr) mapped.insert(name);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(t.storage->data()) % kAlignment, 0u) << name;
    }
    EXPECT_EQ(mapped, expected);
  };
  write_safetensors(path, tensors);
  check({"16", "32", "4096"});
  for (const auto& [name, t] : read_safetensors(path, make_host_allocator())) EXPECT_EQ(t.storage->file(), nullptr);
  // The file is another writer's, whose header may have any length.
  std::string text = content(path);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  length += 8;
  std::memcpy(text.data(), &length, 8);
  text.insert(length, 8, ' ');
  std::ofstream(path, std::ios::binary) << text;
  check({});
}

TEST_F(MappedWeights, SavingAgainLeavesThemAsTheyWere) {
  const std::string dir = save();
  Engine engine({.cores = 1});
  Session old = load_session(engine, dir);
  save({kLong}, 8);
  Session fresh = load_session(engine, dir);
  EXPECT_EQ(result(submit(fresh, filled(1))), filled(9));
  write_safetensors(weights(), {{"w", tensor({1})}});
  EXPECT_EQ(result(submit(fresh, filled(1))), filled(9));
  EXPECT_EQ(result(submit(old, filled(1))), filled(4));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), {}), 4);  // nothing is left beside it
  EXPECT_THAT(error_of([&] {
                write_safetensors(dir, {{"w", tensor({1})}});
              }),
              HasSubstr(dir + ": cannot be written: "));
  EXPECT_FALSE(fs::exists(dir + ".new"));
  fs::create_symlink(weights(), folder_.path() + "/link");
  write_safetensors(folder_.path() + "/link", {{"w", tensor({2})}});
  EXPECT_TRUE(fs::is_symlink(folder_.path() + "/link"));
  EXPECT_EQ(*static_cast<const float*>(read_safetensors(weights(), make_host_allocator()).at("w").storage->data()), 2);
}

TEST_F(MappedWeights, AFileThatIsCutOffFailsStepsAndNotTheProcess) {
  const std::string dir = save();
  Engine engine({.cores = 1});
  Session session = load_session(engine, dir);
  EXPECT_EQ(result(submit(session, filled(1))), filled(4));
  const Bundle untouched = load_bundle(dir);
  fs::resize_file(weights(), 8192);
  const std::string says = "io: " + weights() + ": it was cut off while it was mapped, and pages of it read as zeros";
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(error_of([&] { submit(session, filled(1)).outputs(); }), ::testing::StartsWith(says));
  // Neither are they copied, written on, nor found to be equal to others.
  EXPECT_THAT(error_of([&] { bind_weights(engine, session.plan(), untouched.weights); }), ::testing::StartsWith(says));
  EXPECT_NE(error_of([&] { save_bundle(dir + "2", untouched); }), "");
  EXPECT_FALSE(fs::exists(dir + "2"));
  fs::remove_all(dir + "2.new");
  EXPECT_THAT(error_of([&] { load_session(engine, dir); }), HasSubstr("data_offsets"));
  save({kLong}, 5);
  session = load_session(engine, dir);
  EXPECT_EQ(result(submit(session, filled(1))), filled(6));
}

TEST_F(MappedWeights, SignalsAboutOtherMemoryAreNotOurs) {
  save();
  const std::vector<int> codes = in_processes(1, [&](int) {
    const InputFile file(weights());
    const MappedFile mapped(file);
    void* const other = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    fs::resize_file(weights(), 0);
    return static_cast<int>(*static_cast<volatile const char*>(other)) * 0;
  });
  EXPECT_NE(codes[0], 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(codes[0], 128 + SIGBUS);
#endif
}

}  // namespace
}  // namespace sluice::test
