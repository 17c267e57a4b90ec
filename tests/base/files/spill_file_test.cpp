#include "base/files/spill_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/error_of.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A folder that goes with the test.
class SpillFiles : public testing::Test {
 protected:
  SpillFiles() {
    std::string name = (fs::temp_directory_path() / "spill-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << name;
    folder_ = name;
  }
  ~SpillFiles() override { fs::remove_all(folder_); }
  // The open file that lies there, as a path by which it can be cut.
  std::string open_file() const {
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (fs::read_symlink(entry.path(), gone).string().starts_with(folder_)) return entry.path().string();
    }
    return "";
  }
  std::string folder_;
};

TEST_F(SpillFiles, KeepBytesAndHaveNoName) {
  const std::vector<char> written(10000, 'a'), more(3000, 'b');
  std::vector<char> got(10000), rest(3000);
  {
    SpillFile file(folder_, 16384);
    EXPECT_TRUE(fs::is_empty(folder_));
    EXPECT_THAT(file.path(), StartsWith(folder_ + "/#"));
    EXPECT_EQ(fs::file_size(open_file()), 16384u);  // reserved
    file.write(0, written.data(), written.size());
    file.write(12288, more.data(), more.size());
    file.read(12288, rest.data(), rest.size());
    file.read(0, got.data(), got.size());
    EXPECT_EQ(file.bytes_written(), 13000u);
    EXPECT_EQ(file.bytes_read(), 13000u);
  }
  EXPECT_EQ(got, written);
  EXPECT_EQ(rest, more);
  EXPECT_EQ(open_file(), "");
}

TEST_F(SpillFiles, AFullDiskIsAnErrorWhenTheFileIsMade) {  // STP-07
  // A limit of the process takes the place of the disk's end.
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string told = test::error_of([&] { SpillFile(folder_, 1 << 20); });
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(told, HasSubstr("spill file " + folder_ + "/#"));
  EXPECT_THAT(told, HasSubstr("1048576 bytes cannot be reserved: File too large; SLUICE_SPILL_DIR must name a folder"));
  EXPECT_EQ(open_file(), "");
}

TEST_F(SpillFiles, AFileThatCannotBeReadIsNamed) {  // STP-07
  SpillFile file(folder_, 8192);
  std::vector<char> bytes(8192, 'c');
  file.write(0, bytes.data(), bytes.size());
  fs::resize_file(open_file(), 100);
  EXPECT_THAT(test::error_of([&] { file.read(0, bytes.data(), bytes.size()); }),
              HasSubstr("spill file " + file.path() + ": 8192 bytes at 0 cannot be read: the file ends before them"));
  file.write(0, bytes.data(), bytes.size());  // it goes on
  file.read(0, bytes.data(), bytes.size());
}

TEST_F(SpillFiles, AFolderThatIsNotThereIsNamed) {
  EXPECT_THAT(test::error_of([&] { SpillFile(folder_ + "/nowhere", 1); }),
              HasSubstr("spill file in " + folder_ + "/nowhere: cannot be made: No such file or directory"));
}

}  // namespace
}  // namespace sluice
