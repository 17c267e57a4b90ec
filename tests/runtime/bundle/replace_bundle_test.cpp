// Tests what takes the place of what: bundles and files that are saved, and loads beside saves.
#include "runtime/bundle/replace_bundle.h"

#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/bundle/bundle_files.h"
#include "runtime/bundle/bundle_layout.h"
#include "runtime/bundle/safetensors.h"
#include "runtime/bundle_fixture.h"
#include "runtime/family/family_bundle.h"
#include "support/soak.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

// All its files tell the number: the plan's name, the graph's text, meta.json and the weights.
Bundle numbered(int number) {
  Bundle bundle{plain_plan(), "graph " + std::to_string(number) + "\n", {}, {{"by", std::to_string(number)}}};
  bundle.plan.name = "plan" + std::to_string(number);
  bundle.weights["w"] = tensor(Floats(4, static_cast<float>(number)));
  return bundle;
}

FamilyBundle numbered_family(int number) {
  Bundle member = numbered(number);
  plan::Family family{member.plan.name, {}, {}, {}, {{}}};
  for (const plan::NamedType& in : named_inputs(member.plan))
    family.inputs.push_back({in.name, in.type.dtype, {{plan::FamilyAxis::kFixed, kN}}});
  for (const char* name : {"y", "w"})
    family.outputs.push_back({name, DType::kFloat32, {{plan::FamilyAxis::kFixed, kN}}});
  const BundleMeta meta = std::exchange(member.meta, {});
  return {std::move(family), {std::move(member)}, meta};
}

// -1 where they do not agree.
int number_of(const Bundle& bundle, const std::map<std::string, std::string>& meta) {
  const int number = std::stoi(meta.at("by"));
  const auto* w = static_cast<const float*>(bundle.weights.at("w").storage->data());
  const bool same = bundle.plan.name == "plan" + std::to_string(number) &&
                    bundle.graph_text == "graph " + std::to_string(number) + "\n" &&
                    w[0] == static_cast<float>(number) && w[3] == static_cast<float>(number);
  return same ? number : -1;
}

int number_at(const std::string& path) {
  const BundleSource source(path);
  const auto host = make_host_allocator();
  if (is_family_bundle(source)) {
    const FamilyBundle family = load_family_bundle(source, host);
    return number_of(family.members.at(0), family.meta);
  }
  const Bundle bundle = load_bundle(source, host);
  return number_of(bundle, bundle.meta);
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// By path: a file's bytes, a link's target, or "<folder>", "<other>".
std::map<std::string, std::string> told(const fs::path& folder) {
  std::map<std::string, std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const fs::file_status status = entry.symlink_status();
    found[entry.path().string()] = fs::is_symlink(status)        ? fs::read_symlink(entry.path()).string()
                                   : fs::is_regular_file(status) ? read_text(entry.path())
                                   : fs::is_directory(status)    ? "<folder>"
                                                                 : "<other>";
  }
  return found;
}

class ReplaceBundle : public ::testing::Test {
 protected:
  ReplaceBundle() : folder_("sluice_replace_") { fs::create_directories(folder_.path()); }
  fs::path at(const std::string& name) const { return fs::path(folder_.path()) / name; }
  void file(const std::string& name, const std::string& text = "mine") {
    fs::create_directories(at(name).parent_path());
    std::ofstream(at(name)) << text;
  }
  TestFolder folder_;
};

TEST_F(ReplaceBundle, BothKindsTakeTheOthersPlace) {
  const std::string path = at("m").string();
  for (int i = 0; i < 6; ++i) {
    i % 3 == 0 ? save_bundle(path, numbered(i)) : save_family_bundle(path, numbered_family(i));
    EXPECT_EQ(number_at(path), i);
    EXPECT_EQ(fs::exists(at("m/plan.json")), i % 3 == 0);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
  }
}

TEST_F(ReplaceBundle, NothingElseIsReplaced) {
  const std::map<std::string, std::function<void()>> taken = {
      {"it is a file", [&] { file("m"); }},
      {"it is a pipe", [&] { mkfifo(at("m").c_str(), 0600); }},
      {"it is a symbolic link to nothing", [&] { fs::create_symlink("nothing", at("m")); }},
      {"has '1' and is no whole bundle", [&] { file("m/1/model/plan.json"), file("m/config.pbtxt"); }},
      {"has 'notes', which is no part of a bundle", [&] { save_bundle(at("m"), numbered(1)), file("m/notes"); }},
      {"has 'members/0/notes', which is no part",
       [&] { save_family_bundle(at("m"), numbered_family(1)), file("m/members/0/notes"); }},
  };
  const auto savers = {std::function([&] { save_bundle(at("m").string(), numbered(2)); }),
                       std::function([&] { save_family_bundle(at("m").string() + "/", numbered_family(2)); })};
  for (const auto& [why, take] : taken) {
    SCOPED_TRACE(why);
    take();
    const auto before = told(folder_.path());
    for (const auto& save : savers) EXPECT_THAT(error_of(save), HasSubstr(why));
    EXPECT_EQ(told(folder_.path()), before);
    fs::remove_all(at("m"));
  }
}

TEST_F(ReplaceBundle, WithoutAnExchangeOfFoldersToo) {
  const std::string path = at("m").string();
  for (int i = 0; i < 3; ++i) {
    const auto write = [&](const fs::path& fresh) {
      save_bundle(at("made"), numbered(i));
      for (const auto& entry : fs::directory_iterator(at("made"))) fs::copy(entry.path(), fresh);
    };
    replace_bundle(path, write, FolderExchange::kRename);
    EXPECT_EQ(number_at(path), i);
  }
  fs::remove_all(at("made"));
  file("m/notes");
  const auto before = told(folder_.path());
  EXPECT_THAT(error_of([&] {
                replace_bundle(
                    path, [](const fs::path&) {}, FolderExchange::kRename);
              }),
              HasSubstr("'notes'"));
  fs::remove(at("m/notes"));
  EXPECT_THAT(error_of([&] {
                replace_bundle(
                    path, [&](const fs::path&) { file("m/notes"); }, FolderExchange::kRename);
              }),
              HasSubstr("'notes'"));
  EXPECT_EQ(told(folder_.path()), before);
}

TEST_F(ReplaceBundle, AFileTakesThePlaceOfAFileAlone) {
  const auto save = [&] { write_safetensors(at("x").string(), {{"w", tensor({1})}}); };
  file("x.new"), file("x.old");
  save(), save();
  EXPECT_EQ(read_text(at("x.new")) + read_text(at("x.old")), "minemine");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 3);
  fs::permissions(at("x"), fs::perms::owner_all);
  save();
  EXPECT_EQ(fs::status(at("x")).permissions(), fs::perms::owner_all);
  for (const auto& [why, take] : std::map<std::string, std::function<void()>>{
           {"it is a pipe; it must be a file, or not there", [&] { mkfifo(at("x").c_str(), 0600); }},
           {"it is a symbolic link to nothing", [&] { fs::create_symlink("nothing", at("x")); }},
           {"it is a folder", [&] { fs::create_directory(at("x")); }}}) {
    fs::remove(at("x"));
    take();
    const auto before = told(folder_.path());
    EXPECT_THAT(error_of(save), HasSubstr(at("x").string() + ": cannot be written: "));
    EXPECT_THAT(error_of(save), HasSubstr(why));
    EXPECT_EQ(told(folder_.path()), before);
  }
}

// Whichever file of a bundle is that of another save is found, and weights that another program has written are taken.
TEST_F(ReplaceBundle, FilesOfTwoSavesAreRefused) {
  const std::string path = at("m").string();
  for (const bool family : {false, true}) {
    const auto save = [&](const std::string& name, int number) {
      family ? save_family_bundle(at(name), numbered_family(number)) : save_bundle(at(name), numbered(number));
    };
    save("other", 2);
    save("m", 1);
    const auto files = told(at("other"));
    for (const auto& [file, text] : files) {
      if (text == "<folder>" || file.ends_with(kFamilyFile))
        continue;  // the families' own files differ in the name alone
      SCOPED_TRACE(file);
      const fs::path here = at("m") / fs::relative(file, at("other"));
      save("m", 1);
      EXPECT_EQ(number_at(path), 1);
      fs::copy_file(file, here, fs::copy_options::overwrite_existing);
      const std::string error = error_of([&] { number_at(path); });
      EXPECT_THAT(error,
                  HasSubstr(file.ends_with(kWeightsFile)
                                ? ": of another save than the rest of its bundle: digest "
                                : "meta.json: not of one save with the other texts of its bundle: its digest is "));
      EXPECT_THAT(error, HasSubstr("save it again, or"));
    }
    save("m", 1);
    std::string header = R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", weights(8, '\0');
    weights[0] = static_cast<char>(header.size());
    std::ofstream(at("m") / kWeightsFile) << weights + header + std::string(16, '\0');
    EXPECT_EQ(number_at(path), -1);  // loaded, with these
    fs::remove_all(at("m"));
    fs::remove_all(at("other"));
  }
}

TEST_F(ReplaceBundle, BundlesWithoutADigestLoad) {
  save_bundle(at("m"), numbered(3));
  file("m/meta.json", R"({"by": "3"})");
  EXPECT_EQ(number_at(at("m")), 3);
  file("m/meta.json", R"({"by": "3", "digest": "1"})");
  EXPECT_THAT(error_of([&] { number_at(at("m")); }), HasSubstr("meta.json: digest '1'; must be two numbers"));
}

// Loads while others save to the same path, by both ways to exchange folders: each gets one bundle, and none fails.
class SoakLoadBesideSave : public ReplaceBundle, public ::testing::WithParamInterface<FolderExchange> {};

TEST_P(SoakLoadBesideSave, EachLoadIsOfOneBundle) {
  const std::string path = at("m").string();
  const bool atomic = GetParam() == FolderExchange::kAtomic;
  save_bundle(path, numbered(0));
  std::atomic<bool> done{false};
  std::atomic<int64_t> saved{0}, loads{0}, wrong{0}, failed{0};
  std::string error;
  std::mutex mutex;
  const auto failing = [&](const std::string& what) {
    const std::lock_guard lock(mutex);
    if (failed++ == 0) error = what;
  };
  std::vector<std::thread> threads;
  for (int saver = 0; saver < 2; ++saver)
    threads.emplace_back([&, saver] {
      for (int i = saver; !done; i += 2) try {
          const std::string made = at("made" + std::to_string(saver)).string();
          const std::string& to = atomic ? path : made;
          (i / 2) % 4 == 0 ? save_family_bundle(to, numbered_family(i)) : save_bundle(to, numbered(i));
          if (!atomic)
            replace_bundle(
                path, [&](const fs::path& fresh) { fs::copy(made, fresh, fs::copy_options::recursive); }, GetParam());
          ++saved;
        } catch (const std::exception& e) {
          failing(std::string("save: ") + e.what());
        }
    });
  const int64_t wanted = repetitions(2000, 50000), saves = 10;
  const auto goes_on = [&] { return loads++ < wanted || (saved <= saves && failed == 0); };
  for (int loader = 0; loader < 2; ++loader)
    threads.emplace_back([&] {
      while (goes_on()) try {
          wrong += number_at(path) < 0;
        } catch (const std::exception& e) {
          failing(std::string("load: ") + e.what());
        }
    });
  for (size_t i = 2; i < threads.size(); ++i) threads[i].join();
  done = true;
  for (size_t i = 0; i < 2; ++i) threads[i].join();
  report_count(atomic ? "loads beside saves" : "loads beside saves that rename", loads - 2,
               fmt::format("loads beside {} saves, {} wrong, {} failed", saved.load(), wrong.load(), failed.load()));
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(failed, 0) << error;
  EXPECT_GT(saved, saves);
  fs::remove_all(at("made0")), fs::remove_all(at("made1"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
}
INSTANTIATE_TEST_SUITE_P(Both, SoakLoadBesideSave, ::testing::Values(FolderExchange::kAtomic, FolderExchange::kRename),
                         [](const auto& tested) {
                           return tested.param == FolderExchange::kAtomic ? "exchange" : "rename";
                         });

}  // namespace
}  // namespace sluice::test
