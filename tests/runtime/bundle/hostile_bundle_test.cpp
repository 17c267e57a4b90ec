// Bundles made to do harm: links, pipes, devices, lying headers, files that change while they are read.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/files/file.h"
#include "plan/json/json.h"
#include "runtime/bundle/bundle.h"
#include "runtime/bundle/safetensors.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::StartsWith;

class HostileBundle : public ::testing::Test {
 protected:
  HostileBundle() : root_(fs::path(::testing::TempDir()) / ("sluice_hostile_" + std::to_string(getpid()))) {
    fs::create_directories(root_);
    save_bundle(dir_.string(), {pipeline({"copy"}), "graph \"g\" {\n}\n", {{"w", tensor()}}, {{"by", "test"}}});
  }
  ~HostileBundle() override { fs::remove_all(root_); }
  static BundleTensor tensor() {
    auto storage = std::make_shared<Storage>(make_host_allocator(), 64);
    std::memset(storage->data(), 1, 64);
    return {PlanBuilder::f32({16}), storage};
  }
  void write(const std::string& file, const std::string& text) {
    std::ofstream(dir_ / file, std::ios::binary | std::ios::trunc) << text;
  }
  std::string read(const std::string& file) {
    std::ifstream in(dir_ / file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void weights(const std::string& header, size_t data, uint64_t length) {
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    write("weights.safetensors", file + header + std::string(data, '\0'));
  }
  void weights(const std::string& header, size_t data) { weights(header, data, header.size()); }
  // Without the prefix of its kind that error_of adds.
  std::string load_error() {
    try {
      load_bundle(dir_.string());
      return "no error";
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::string at(const std::string& file) { return (dir_ / file).string() + ": "; }

  fs::path root_, dir_ = root_ / "bundle";
};

constexpr const char* kFiles[] = {"plan.json", "graph.txt", "meta.json", "weights.safetensors"};

TEST_F(HostileBundle, LinksArePartOfNoBundle) {
  for (const char* file : kFiles) {
    SCOPED_TRACE(file);
    fs::rename(dir_ / file, root_ / "outside");
    fs::create_symlink(root_ / "outside", dir_ / file);
    EXPECT_EQ(load_error(), at(file) + "cannot be read: it is a symbolic link; it must be a file in its directory");
    fs::remove(dir_ / file);
    fs::create_symlink("../outside", dir_ / file);
    EXPECT_THAT(load_error(), HasSubstr("it is a symbolic link"));
    fs::remove(dir_ / file);
    fs::create_symlink(file, dir_ / file);  // to itself
    EXPECT_THAT(load_error(), HasSubstr("it is a symbolic link"));
    fs::remove(dir_ / file);
    fs::rename(root_ / "outside", dir_ / file);
  }
  EXPECT_EQ(load_error(), "no error");
  // The bundle itself may be linked to, and so may a file that is named for itself.
  fs::create_symlink(dir_, root_ / "link");
  EXPECT_NO_THROW(load_bundle((root_ / "link").string()));
  EXPECT_EQ(plan::load_plan((root_ / "link").string()).name, "pipeline");
  fs::create_symlink(dir_ / "plan.json", root_ / "plan.json");
  EXPECT_EQ(plan::load_plan((root_ / "plan.json").string()).name, "pipeline");
  fs::remove(dir_ / "plan.json");
  fs::create_symlink("/etc/passwd", dir_ / "plan.json");
  try {
    plan::load_plan(dir_.string());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("it is a symbolic link"));
  }
}

TEST_F(HostileBundle, PipesSocketsDevicesAndDirectoriesAreNotWaitedFor) {
  for (const char* file : kFiles) {
    SCOPED_TRACE(file);
    const std::string good = read(file);
    fs::remove(dir_ / file);
    ASSERT_EQ(mkfifo((dir_ / file).c_str(), 0600), 0);
    EXPECT_EQ(load_error(), at(file) + "cannot be read: it is a pipe; it must be a regular file");
    fs::remove(dir_ / file);
    fs::create_directory(dir_ / file);
    EXPECT_EQ(load_error(), at(file) + "cannot be read: it is a directory; it must be a regular file");
    fs::remove(dir_ / file);
    write(file, good);
  }
  EXPECT_THAT(error_of([] { read_file("/dev/zero"); }), HasSubstr("it is a device; it must be a regular file"));
  EXPECT_THAT(error_of([] { read_safetensors("/dev/zero", make_host_allocator()); }), HasSubstr("it is a device"));
  EXPECT_THAT(error_of([] { read_file(std::string("a\0b", 3)); }), HasSubstr("a path holds no zero byte"));
}

TEST_F(HostileBundle, AFileOfMoreThanAnyTextIsNotRead) {
  fs::resize_file(dir_ / "graph.txt", uint64_t{3} << 30);  // a hole: takes no room on the disk
  EXPECT_EQ(load_error(), at("graph.txt") + "cannot be read: 3221225472 bytes; at most 1073741824 of text are read");
}

TEST_F(HostileBundle, FilesThatShrinkAreAnError) {
  InputFile file((dir_ / "weights.safetensors").string());
  std::vector<char> data(file.size());
  fs::resize_file(dir_ / "weights.safetensors", 10);
  try {
    file.read(data.data(), data.size());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), AllOf(StartsWith(at("weights.safetensors") + "cannot be read: it ends "),
                                    HasSubstr("bytes too early; it had")));
  }
}

// Someone cuts and restores the weights while they are loaded: each time all of them, or an error of one line.
TEST_F(HostileBundle, WeightsThatChangeWhileTheyAreRead) {
  const std::string file = (dir_ / "weights.safetensors").string(), good = read("weights.safetensors");
  std::atomic<bool> done{false};
  std::thread changer([&] {
    while (!done) {
      if (truncate(file.c_str(), 20) != 0) return;
      std::ofstream(file, std::ios::binary | std::ios::in | std::ios::out) << good;
    }
  });
  int loaded = 0, refused = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string error = load_error();
    (error == "no error" ? loaded : refused) += 1;
    if (error != "no error") {
      EXPECT_THAT(error, StartsWith(at("weights.safetensors")));
    }
  }
  done = true;
  changer.join();
  EXPECT_EQ(loaded + refused, 300);
}

TEST_F(HostileBundle, HeadersThatLie) {
  const std::string name = at("weights.safetensors");
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  weights("{}", 0, uint64_t{1} << 63);
  EXPECT_EQ(load_error(), name +
                              "a header of 9223372036854775808 bytes in a file of 10; the file is truncated or not "
                              "safetensors");
  weights("{}", 0, ~uint64_t{0});
  EXPECT_THAT(load_error(), HasSubstr("a header of 18446744073709551615 bytes in a file of 10"));
  weights(R"({"w":)" + entry + R"(,"w":)" + entry + "}", 4);
  EXPECT_THAT(load_error(),
              AllOf(StartsWith(name + "\"w\": appears twice in one object"), EndsWith("each field must appear once")));
  weights(R"({"w":)" + entry + R"(,"\u0077":)" + entry + "}", 4);
  EXPECT_THAT(load_error(), HasSubstr("\"w\": appears twice"));
  weights(R"({"a":)" + entry + R"(,"b":)" + entry + "}", 4);
  EXPECT_THAT(load_error(), HasSubstr("tensor 'b' begins at 0; the data before it ends at 4: no holes or overlaps"));
  weights(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6);
  EXPECT_THAT(load_error(), HasSubstr("no holes or overlaps"));
  weights(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4);
  EXPECT_THAT(load_error(), HasSubstr("tensor 'a': data_offsets [4, 0) of 4 bytes"));
  weights(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4);
  EXPECT_THAT(load_error(), HasSubstr("tensor 'a': a dimension or offset is 1.5E0; it must be a whole number"));
  weights(R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]}})", 4);
  EXPECT_THAT(load_error(), HasSubstr("a dimension or offset is 9223372036854775808; it must be a whole number"));
  weights(R"({"a":{"dtype":"F64","shape":[4611686018427387904,2],"data_offsets":[0,4]}})", 4);
  EXPECT_THAT(load_error(), StartsWith(name + "tensor 'a': shape: size overflows: (4611686018427387904, 2)"));
  weights(R"({"a":{"dtype":"F64","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", 0);
  EXPECT_THAT(load_error(), StartsWith(name + "tensor 'a': shape: size overflows: (0, 4611686018427387904, 4)"));
  weights(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4);
  EXPECT_THAT(load_error(), HasSubstr("tensor 'a': rank 9; at most 8"));
  weights(R"({"__metadata__":[1],"w":)" + entry + "}", 4);
  EXPECT_THAT(load_error(), HasSubstr("__metadata__: wrong type: [1]; must be an object of strings"));
  weights(std::string(100000, '[') + std::string(100000, ']'), 0);
  EXPECT_THAT(load_error(), HasSubstr("the header is not a JSON object: too deep"));
  weights("{\"\xff\":" + entry + "}", 4);
  EXPECT_THAT(load_error(), HasSubstr("the header is not a JSON object: "));
}

// Names go nowhere near the file system: any text may be one.
TEST_F(HostileBundle, NamesAreNotPaths) {
  std::map<std::string, BundleTensor> tensors;
  const std::string names[] = {"../../../tmp/x", "/etc/passwd", std::string("a\0b", 3), "line\nbreak", "", "\xc3\xa4"};
  for (const std::string& n : names) tensors[n] = tensor();
  save_bundle(dir_.string(), {pipeline({"copy"}), "", tensors, {{"../x", "y\n"}}});
  const Bundle bundle = load_bundle(dir_.string());
  EXPECT_EQ(bundle.weights.size(), std::size(names));
  for (const std::string& n : names) EXPECT_TRUE(bundle.weights.contains(n));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 4);
}

TEST_F(HostileBundle, DocumentsThatAreTooDeepOrFromTheFuture) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const std::string good = read("plan.json");
  write("plan.json", deep);
  EXPECT_THAT(load_error(), AllOf(StartsWith(at("plan.json")), HasSubstr("too deep")));
  write("plan.json", "{\"schema_version\": " + deep + "}");
  EXPECT_THAT(load_error(), HasSubstr("too deep"));
  write("plan.json", std::string(good).replace(good.find("\"schema_version\": 1"), 19, "\"schema_version\": 2"));
  EXPECT_EQ(load_error(), at("plan.json") +
                              "version 2: newer than this build, which reads version 1; upgrade Sluice, or compile "
                              "graph.txt with this release");
  write("plan.json", std::string(good).replace(good.find("\"quota\": 2"), 10, "\"quota\": 2, \"quota\": 9"));
  EXPECT_THAT(load_error(), StartsWith(at("plan.json") + "\"quota\": appears twice in one object, again at byte "));
  for (const char* number : {"1e999", "9223372036854775808", "-1", "2.0", "1e400"}) {
    write("plan.json", std::string(good).replace(good.find("\"quota\": 2"), 10, std::string("\"quota\": ") + number));
    EXPECT_THAT(load_error(), StartsWith(at("plan.json") + "registers[0].quota: ")) << number;
  }
  for (const char* number : {"NaN", "Infinity", "0x10", "01", "+1", "-"}) {
    write("plan.json", std::string(good).replace(good.find("\"quota\": 2"), 10, std::string("\"quota\": ") + number));
    EXPECT_THAT(load_error(), HasSubstr("not a complete JSON document")) << number;
  }
  write("plan.json", std::string(good).replace(good.find("\"pipeline\""), 10, "\"\xff\xfe\""));
  EXPECT_THAT(load_error(), HasSubstr("not a complete JSON document: syntax error"));
  write("plan.json", good);
  write("meta.json", "{\"a\": " + deep + "}");
  EXPECT_THAT(load_error(), AllOf(StartsWith(at("meta.json")), HasSubstr("too deep")));
  write("meta.json", R"({"a": "1", "a": "2"})");
  EXPECT_THAT(load_error(), StartsWith(at("meta.json") + "\"a\": appears twice"));
}

}  // namespace
}  // namespace sluice::test
