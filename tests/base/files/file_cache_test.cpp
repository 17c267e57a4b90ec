// A folder of files by key: found as they were put, or not at all.
#include "base/files/file_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/build_id.h"
#include "base/files/sha256.h"
#include "base/log.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FileCacheTest : public ::testing::Test {
 protected:
  FileCacheTest() : directory_(fs::temp_directory_path() / fmt::format("file_cache_{}", getpid())) {
    fs::remove_all(directory_);
    set_log_sink([this](std::string_view line) { log_ += std::string(line) + "\n"; });
  }
  ~FileCacheTest() override {
    set_log_sink(nullptr);
    fs::remove_all(directory_);
  }
  static std::string get(FileCache& cache, const std::string& key) {
    return cache.find(key, [](std::string_view content) { return std::string(content); }).value_or("none");
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(directory_)) all.push_back(entry.path());
    return all;
  }

  const fs::path directory_;
  std::string log_;
};

TEST_F(FileCacheTest, GivesWhatWasPut) {
  FileCache cache(directory_, 1 << 20);
  EXPECT_EQ(get(cache, "a"), "none");
  cache.put("a", "one");
  cache.put("b", std::string("\0two", 4));
  EXPECT_EQ(get(cache, "a"), "one");
  EXPECT_EQ(get(cache, "b"), std::string("\0two", 4));
  cache.put("a", "other");
  EXPECT_EQ(get(cache, "a"), "other");
  const FileCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.hits, 3u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.stored, 3u);
  EXPECT_EQ(stats.entries, 2u);
  FileCache later(directory_, 1 << 20);
  EXPECT_EQ(get(later, "a"), "other");
  later.clear();
  EXPECT_EQ(get(cache, "a"), "none");
}

TEST_F(FileCacheTest, EveryBitCounts) {
  FileCache cache(directory_, 1 << 20);
  cache.put("key", "some content");
  const fs::path path = files().at(0);
  std::string good(fs::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(good.data(), static_cast<std::streamsize>(good.size()));
  for (size_t bit = 0; bit < good.size() * 8; bit += 5) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    std::ofstream(path, std::ios::binary) << bad;
    EXPECT_EQ(get(cache, "key"), "none") << bit;
    EXPECT_FALSE(fs::exists(path));
    cache.put("key", "some content");
  }
  for (size_t length = 0; length < good.size(); length += 3) {
    std::ofstream(path, std::ios::binary) << good.substr(0, length);
    EXPECT_EQ(get(cache, "key"), "none") << length;
    cache.put("key", "some content");
  }
  EXPECT_EQ(get(cache, "key"), "some content");
  EXPECT_THAT(log_, HasSubstr("it is ignored, and made anew"));
}

TEST_F(FileCacheTest, AFileUnderAnothersNameIsNotTaken) {
  FileCache cache(directory_, 1 << 20);
  cache.put("a", "one");
  const fs::path path = files().at(0);
  cache.put("b", "two");
  for (const fs::path& other : files())
    if (other != path) fs::rename(path, other);
  EXPECT_EQ(get(cache, "b"), "none");
  EXPECT_EQ(cache.stats().rejected, 1u);
}

TEST_F(FileCacheTest, WhatItsReaderRefusesIsRemoved) {
  FileCache cache(directory_, 1 << 20);
  cache.put("a", "one");
  const auto refuse = [](std::string_view) -> int { fail(ErrorKind::kValue, "is wrong"); };
  EXPECT_FALSE(cache.find("a", refuse).has_value());
  EXPECT_TRUE(files().empty());
  EXPECT_THAT(log_, HasSubstr(": is wrong; it is ignored, and made anew"));
}

TEST_F(FileCacheTest, PipesAndFoldersInTheWayAreNotWaitedFor) {
  FileCache cache(directory_, 1 << 20);
  cache.put("a", "one");
  const fs::path path = files().at(0);
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(get(cache, "a"), "none");
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_EQ(get(cache, "a"), "none");
  cache.put("a", "one");  // cannot be: a folder is in the way
  EXPECT_EQ(get(cache, "a"), "none");
  EXPECT_THAT(log_, HasSubstr("nothing is kept there"));
}

TEST_F(FileCacheTest, TheLongestUnusedGoFirst) {
  FileCache cache(directory_, 1 << 20);
  for (const char* key : {"a", "b", "c"}) cache.put(key, std::string(1000, 'x'));
  EXPECT_NE(get(cache, "a"), "none");
  cache.set_most_bytes(cache.stats().bytes);
  cache.put("d", std::string(1000, 'x'));
  EXPECT_EQ(get(cache, "b"), "none");
  for (const char* key : {"c", "a", "d"}) EXPECT_NE(get(cache, key), "none") << key;
  EXPECT_EQ(cache.stats().evicted, 1u);
  cache.put("e", std::string(5000, 'x'));  // more than all of it
  EXPECT_EQ(get(cache, "e"), "none");
  EXPECT_EQ(cache.stats().entries, 3u);
}

// Writers, readers and one that lets go of everything, all at once: whatever is found is whole.
TEST_F(FileCacheTest, ManyAtOnceSeeWholeFilesOrNone) {
  const auto content = [](int key) {
    return std::string(static_cast<size_t>(2000 + key), static_cast<char>('a' + key));
  };
  std::vector<std::unique_ptr<FileCache>> caches;  // as if of several processes
  for (int i = 0; i < 4; ++i) caches.push_back(std::make_unique<FileCache>(directory_, 9000));
  std::atomic<int> found{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const int key = (i * 7 + t) % 6;
        if (i % 3 == 0) caches[t]->put(std::to_string(key), content(key));
        const std::string got = get(*caches[t], std::to_string(key));
        if (got == "none") continue;
        EXPECT_EQ(got, content(key));
        ++found;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(found, 0);
  for (const auto& cache : caches) EXPECT_EQ(cache->stats().rejected, 0u);
  EXPECT_LE(caches[0]->stats().bytes, 9000u);
}

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(BuildId, IsThereAndStaysTheSame) {
  const std::string id = build_id();
  EXPECT_GE(id.size(), 16u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(build_id(), id);
}

}  // namespace
}  // namespace sluice
