// Names, links and files that want out of the repository, or bring something in.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "serving/repository/folder.h"
#include "serving/repository/names.h"
#include "tests/serving/repository/fixture.h"

namespace sluice::serving::test {
namespace {

class HostileTest : public RepositoryTest {
 protected:
  std::string bundle_file(const std::string& name) {
    const fs::path path = dir_ / "bundle";
    if (!fs::exists(path)) compile(path, 7);
    std::ifstream in(path / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  LoadOverrides bundle_in_files(const std::string& version) {
    LoadOverrides overrides;
    overrides.config = "{}";
    for (const char* name : {"plan.json", "graph.txt", "weights.safetensors", "meta.json"})
      overrides.files[version + "/model/" + name] = bundle_file(name);
    return overrides;
  }
  // The folders into which models that come as files are put.
  std::vector<std::string> private_folders() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(dir_ / "tmp")) found.push_back(entry.path());
    return found;
  }
  HostileTest() {
    fs::create_directories(dir_ / "tmp");
    setenv("TMPDIR", (dir_ / "tmp").c_str(), 1);
  }
  ~HostileTest() override {
    server_ = nullptr;
    EXPECT_EQ(private_folders().size(), 0u);
    unsetenv("TMPDIR");
  }
};

TEST_F(HostileTest, NamesOfModels) {
  put("m", 1, 2);
  serve_all();
  const std::vector<std::string> names = {"",
                                          ".",
                                          "..",
                                          "../m",
                                          "m/1",
                                          "m/../m",
                                          "/etc",
                                          "a b",
                                          "\xc3\xbc",
                                          "a\nb",
                                          "-x",
                                          ".m",
                                          "m\\n",
                                          "m%2f",
                                          std::string("m\0x", 3),
                                          std::string(129, 'a')};
  for (const std::string& name : names) {
    EXPECT_NE(refused_load(name).find("it must be of 1 to 128 letters"), std::string::npos) << name;
    EXPECT_NE(refusal([&] { server_->unload(name, true); }).find("it must be of 1 to 128 letters"), std::string::npos);
    EXPECT_NE(error(name).find("is not found"), std::string::npos);
    EXPECT_NE(error("m", name.empty() ? ".." : name).find("is not found"), std::string::npos);
  }
  EXPECT_TRUE(is_model_name("a"));
  EXPECT_TRUE(is_model_name("0-A_b.C"));
  EXPECT_TRUE(is_model_name(std::string(128, 'a')));
  EXPECT_EQ(version_of("0"), 0);
  EXPECT_EQ(version_of("123456789012345678"), 123456789012345678);
  for (const char* text : {"", "01", "-1", "+1", "1a", "1234567890123456789", " 1"})
    EXPECT_FALSE(version_of(text)) << text;
}

TEST_F(HostileTest, FoldersWithOtherNamesAreNoModels) {
  put("m", 1, 2);
  for (const char* name : {"\xc3\xbc", ".hidden", "a b", "-x"}) fs::create_directories(repository_ / name / "1");
  write("file", "no model");
  serve_all();
  EXPECT_EQ(index(), "m 1 READY");
}

TEST_F(HostileTest, LinksLeadNowhere) {
  put("m", 1, 2);
  compile(dir_ / "outside" / "1" / "model", 3);
  std::ofstream(dir_ / "secret") << "secret words\n";
  serve();
  const std::string link =
      "it is a link, or leads out of its folder; models are files and folders of their own; "
      "with --follow-links, links may lead to others of the repository";

  fs::create_directory_symlink(dir_ / "outside", repository_ / "linked");
  EXPECT_EQ(refused_load("linked"), "model 'linked': 'linked': " + link);

  fs::create_directories(repository_ / "version");
  fs::create_directory_symlink(dir_ / "outside" / "1", repository_ / "version" / "1");
  EXPECT_NE(refused_load("version"), "");

  fs::create_directories(repository_ / "bundle" / "1");
  fs::create_directory_symlink(dir_ / "outside" / "1" / "model", repository_ / "bundle" / "1" / "model");
  EXPECT_EQ(refused_load("bundle"), "model 'bundle' version 1: 'model': " + link);

  put("files", 1, 2);
  fs::remove(repository_ / "files" / "1" / "model" / "weights.safetensors");
  fs::create_symlink(dir_ / "secret", repository_ / "files" / "1" / "model" / "weights.safetensors");
  EXPECT_EQ(refused_load("files"), "model 'files' version 1: 'model/weights.safetensors': " + link);

  put("labels", 1, 2);
  fs::create_symlink(dir_ / "secret", repository_ / "labels" / "labels.txt");
  write("labels/config.pbtxt", "output { name: \"OUTPUT_0\" label_filename: \"labels.txt\" }");
  EXPECT_EQ(refused_load("labels"), "model 'labels': 'labels.txt': " + link);

  put("config", 1, 2);
  fs::create_symlink(dir_ / "secret", repository_ / "config" / "config.pbtxt");
  const std::string text = refused_load("config");
  EXPECT_EQ(text, "model 'config': 'config.pbtxt': " + link);
  EXPECT_EQ(text.find("secret"), std::string::npos);
}

// As Kubernetes mounts a volume: what is mounted are links through ..data, which is exchanged as a whole.
TEST_F(HostileTest, WhereLinksAreFollowedTheyLeadToNothingOutside) {
  options_.follow_links = true;
  const auto publish = [&](const std::string& folder, float w) {
    compile(repository_ / folder / "m" / "1" / "model", w);
    fs::create_directory_symlink(folder, repository_ / "..new");
    fs::rename(repository_ / "..new", repository_ / "..data");
  };
  publish("..2026_1", 2);
  std::ofstream(repository_ / "..2026_1" / "m" / "config.pbtxt") << "backend: 'sluice'";
  fs::create_directory_symlink("..data/m", repository_ / "m");
  // Within a model, and within a version, too; a link of a link.
  compile(repository_ / "store" / "model", 5);
  fs::create_directories(repository_ / "inner" / "1");
  fs::create_directory_symlink("../../store/model", repository_ / "inner" / "1" / "model");
  write("inner/..v1/labels.txt", "a\n");
  fs::create_symlink("..v1/labels.txt", repository_ / "inner" / "labels");
  fs::create_symlink("labels", repository_ / "inner" / "labels.txt");
  write("inner/config.pbtxt", "output { name: \"OUTPUT_0\" label_filename: \"labels.txt\" }");
  serve();
  server_->load("m", {});
  server_->load("inner", {});
  EXPECT_EQ(factor("m"), 2);
  EXPECT_EQ(factor("inner"), 5);
  publish("..2026_2", 3);
  server_->load("m", {});
  EXPECT_EQ(factor("m"), 3);

  compile(dir_ / "outside" / "1" / "model", 4);
  std::ofstream(dir_ / "secret") << "secret words\n";
  const std::string out = "it is a link, or leads out of its folder";
  fs::create_directory_symlink(dir_ / "outside", repository_ / "absolute");
  EXPECT_NE(refused_load("absolute").find(out), std::string::npos);
  fs::create_directory_symlink("../outside", repository_ / "up");
  EXPECT_NE(refused_load("up").find(out), std::string::npos);
  put("file", 1, 2);
  fs::create_symlink(dir_ / "secret", repository_ / "file" / "notes");
  EXPECT_NE(refused_load("file").find(out), std::string::npos);
  fs::create_directory_symlink("/proc/self/fd", repository_ / "magic");
  EXPECT_NE(refused_load("magic").find(out), std::string::npos);
  put("round", 1, 2);
  fs::create_directory_symlink(".", repository_ / "round" / "1" / "again");
  EXPECT_NE(refused_load("round").find("folders within folders"), std::string::npos);
  put("nowhere", 1, 2);
  fs::create_symlink("ghost", repository_ / "nowhere" / "1" / "notes");
  EXPECT_NE(refused_load("nowhere").find(out), std::string::npos);
}

TEST_F(HostileTest, ErrorsAreUtf8WhateverFilesAreCalled) {
  put("m", 1, 2);
  fs::create_directories(repository_ / "m" / "1" /
                         "a\xff"
                         "b");
  ASSERT_EQ(mkfifo((repository_ / "m" / "1" /
                    "a\xff"
                    "b" /
                    "c")
                       .c_str(),
                   0600),
            0);
  serve();
  EXPECT_EQ(refused_load("m"),
            "model 'm' version 1: 'a\xef\xbf\xbd"
            "b/c': it is neither a file nor a folder");
  EXPECT_NE(index().find("a\xef\xbf\xbd"
                         "b/c"),
            std::string::npos);
}

TEST_F(HostileTest, AnArchiveInThePlaceOfABundleIsNamed) {
  write("m/1/model", "ustar");
  serve();
  EXPECT_NE(refused_load("m").find("model 'm' version 1: 'model' is a file; models are served from folders: unpack"),
            std::string::npos);
}

TEST_F(HostileTest, FilesWithAnotherNameElsewhereAreRefused) {
  put("m", 1, 2);
  fs::create_hard_link(repository_ / "m" / "1" / "model" / "weights.safetensors", dir_ / "second");
  serve();
  EXPECT_EQ(refused_load("m"),
            "model 'm' version 1: 'model/weights.safetensors': the file has 2 names; a model's files "
            "must be its own: copy it");
}

TEST_F(HostileTest, WhatIsNoFileIsRefused) {
  put("m", 1, 2);
  ASSERT_EQ(mkfifo((repository_ / "m" / "pipe").c_str(), 0600), 0);
  serve();
  EXPECT_EQ(refused_load("m"), "model 'm': 'pipe': it is neither a file nor a folder");
  fs::remove(repository_ / "m" / "pipe");
  ASSERT_EQ(mkfifo((repository_ / "m" / "config.pbtxt").c_str(), 0600), 0);
  EXPECT_EQ(refused_load("m"), "model 'm': 'config.pbtxt': it is no file");
}

TEST_F(HostileTest, AFolderReachesNothingOutside) {
  write("in/file", "inside");
  write("file", "outside");
  const Folder folder = Folder::open(repository_ / "in", "folder");
  EXPECT_EQ(folder.read("file", 100), "inside");
  for (const char* name : {"../file", "..", "/etc/passwd", "file/../../file", "./../file"})
    refusal([&] { EXPECT_EQ(folder.read(name, 100), std::nullopt) << name; });
  EXPECT_EQ(folder.read("nothing", 100), std::nullopt);
  EXPECT_EQ(refusal([&] { static_cast<void>(folder.read("file", 5)); }), "'file': it has more than 5 bytes");
  EXPECT_NE(refusal([&] { folder.write("../new", "x"); }), "");
  EXPECT_NE(refusal([&] { folder.write("file", "x"); }), "");  // never over what is there
  EXPECT_EQ(folder.read("file", 100), "inside");
}

TEST_F(HostileTest, ModelsComeAsFiles) {
  serve();
  server_->load("sent", bundle_in_files("3"));
  EXPECT_EQ(index(), "sent 3 READY");
  EXPECT_EQ(factor("sent"), 7);
  const auto now = private_folders();
  ASSERT_EQ(now.size(), 1u);
  struct stat status {};
  ASSERT_EQ(stat(now[0].c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  server_->unload("sent", false);
  eventually([&] { return private_folders().empty(); }, "its files go");
}

TEST_F(HostileTest, FilesTakeThePlaceOfAModelAndLeaveItAgain) {
  put("m", 1, 2);
  serve_all();
  server_->load("m", bundle_in_files("1"));
  EXPECT_EQ(factor("m"), 7);
  server_->load("m", {});
  EXPECT_EQ(factor("m"), 2);
  LoadOverrides config;
  config.config = R"({"output": [{"name": "y"}], "version_policy": {"all": {}}})";
  server_->load("m", config);
  EXPECT_EQ(server_->model_config("m", "").output(0).name(), "y");
  EXPECT_EQ(ask(*server_, "m", {1, 2, 3}).get().output, "y");
}

TEST_F(HostileTest, FilesWithNamesThatLeadOutAreRefused) {
  serve();
  for (const char* name :
       {"../x", "1/../../x", "/etc/x", "1//x", "", ".", "1/.ssh", "a/b/c/d/e/f/g/h/i", "1/\xc3\xbc"}) {
    LoadOverrides overrides;
    overrides.config = "{}";
    overrides.files[name] = "x";
    EXPECT_NE(refused_load("m", overrides).find("it must be of at most 8 parts"), std::string::npos) << name;
  }
  LoadOverrides overrides;
  overrides.files["1/model/plan.json"] = "{}";
  EXPECT_EQ(refused_load("m", overrides), "load: model 'm': files without a config; give both");
  overrides.config = "{\"name\": ";
  EXPECT_EQ(refused_load("m", overrides).rfind("model 'm': config of the load request: ", 0), 0u);
  overrides.config = "{\"speed\": 3}";
  EXPECT_EQ(refused_load("m", overrides).rfind("model 'm': config of the load request: ", 0), 0u);
  overrides.config = "{}";
  const std::string broken = refused_load("m", overrides);
  EXPECT_EQ(broken.rfind("model 'm' version 1: ", 0), 0u) << broken;
  EXPECT_EQ(broken.find("/tmp"), std::string::npos) << broken;
  EXPECT_EQ(broken.find("/proc"), std::string::npos) << broken;
  server_->unload("m", false);
  eventually([&] { return private_folders().empty(); }, "its files go");
}

// As where the disk is full: what was written goes again.
TEST_F(HostileTest, FilesThatCannotBeWrittenAreRefused) {
  serve();
  LoadOverrides overrides = bundle_in_files("1");
  overrides.files["1/model/zeros"] = std::string(1 << 20, '0');
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {1 << 18, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = refused_load("m", overrides);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(text, "load: files of model 'm': '1/model/zeros': it cannot be written: the disk is full");
  eventually([&] { return private_folders().empty(); }, "what was written goes");
}

// A file and a folder of one name: refused, not half written.
TEST_F(HostileTest, FilesThatContradictEachOtherAreRefused) {
  serve();
  LoadOverrides overrides;
  overrides.config = "{}";
  overrides.files["1"] = "a file";
  overrides.files["1/model/plan.json"] = "{}";
  EXPECT_EQ(refused_load("m", overrides), "load: files of model 'm': '1/model/plan.json': Not a directory");
}

}  // namespace
}  // namespace sluice::serving::test
