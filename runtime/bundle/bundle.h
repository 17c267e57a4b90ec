#pragma once
// A bundle: a directory with a plan and all it needs to run, without Python; or a tar archive of one.
//   plan.json, graph.txt (the graph it was compiled from), weights.safetensors (variables), meta.json (free text pairs)
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/fix.h"
#include "memory/storage.h"
#include "plan/plan.h"
#include "runtime/bundle/bundle_layout.h"
#include "runtime/bundle/bundle_source.h"
#include "runtime/session/session.h"

namespace sluice {

class Engine;

struct Bundle {
  plan::Plan plan;
  std::string graph_text;
  Weights weights;  // by the graph's name of the variable, whole
  std::map<std::string, std::string> meta;
  plan::Shards shards = {};  // of a graph over several devices
};

// Runs `use`, which looks at what `file` of a bundle says. Its errors name the file.
template <class Use>
decltype(auto) about_file(const std::string& directory, const char* file, Use&& use) {
  const auto named = [&](const std::string& what) {
    const std::string path = directory + "/" + file;
    return what.starts_with(directory) ? what : path + ": " + what;
  };
  try {
    return use();
  } catch (const FixableError& error) {
    throw FixableError(error.kind(), named(error.what()), error.fix());
  } catch (const Error& error) {
    throw Error(error.kind(), named(error.what()));
  }
}

// Writes the four files; makes the directory. A bundle already there is replaced at once, when the new one is complete;
// anything else there is refused (runtime/bundle/replace_bundle.h). Throws kIo.
void save_bundle(const std::string& directory, const Bundle& bundle);
// The texts of these files, without the weights: what save_bundle() writes, by the name of the file.
using BundleTexts = std::map<std::string, std::string>;
BundleTexts bundle_texts(const Bundle& bundle);
// A bundle of such texts, without weights; errors call it `name`. Throws kValue. REQUIRES: they are UTF-8.
Bundle bundle_of(const BundleTexts& texts, const std::string& name);
// The files are of one bundle even while others are saved to the same path; those of two saves are refused by their
// digest. Reads strictly: sizes, offsets, dtypes and names are checked before anything is allocated. Weights are pages
// of their file where they can be (Pages::kMap). Throws kIo, kValue.
Bundle load_bundle(const std::string& directory);
// With the other weights in memory of `allocator`. Those `given` take the place of the bundle's of the same names; with
// some given, the bundle need have no file of weights.
Bundle load_bundle(const BundleSource& source, const std::shared_ptr<Allocator>& allocator, const Weights& given = {});
// Loads the weights for load_bundle(): those of the file, if it is there or none are given, and those given. `digest`
// is what the file must say of itself, or "". Throws kValue where one is given that no variable of `plans` is called.
Weights load_weights(const BundleSource& source, const std::shared_ptr<Allocator>& allocator, const Weights& given,
                     const std::string& digest, std::span<const plan::Plan> plans,
                     const plan::ShardsByName& shards = {});

// Puts weights, or the `shards` of them that are the plan's variables, into storages of the right spaces: what
// Session::load binds. Throws kValue naming a variable that is missing or of the wrong type, kIo where pages of a file
// are missing. The weights are copied, unless given up: then those that can serve as they are do. Pages of a file can
// where the plan never writes the variable.
VariableBindings bind_weights(Engine& engine, const plan::Plan& plan,
                              const std::map<std::string, BundleTensor>& weights,
                              const plan::ShardsByName& shards = {});
VariableBindings bind_weights(Engine& engine, const plan::Plan& plan, std::map<std::string, BundleTensor>&& weights,
                              const plan::ShardsByName& shards = {});

// Kernels trust the types of their operands, so a plan from a file is held against the definitions of its ops before it
// runs, in programs that have them and say so (check_plans_from_files() in tensor/eager.h). Throws for a plan that is
// wrong. The check holds for the process; it may be set at any time.
using PlanCheck = void (*)(const plan::Plan& plan);
void set_plan_check(PlanCheck check);

// load_bundle, the plan check, bind_weights, Session::load. Host functions the plan needs must be in options.functions.
// A plan of several ranks runs on those of the engine's world, each of which must load it; on an engine that has none,
// all of it runs here.
Session load_session(Engine& engine, const BundleSource& source, SessionOptions options = {},
                     const Weights& given = {});
// Makes a session of a bundle that was read from `directory`. With `bound`, weights of one storage are bound as one to
// all plans that have them in one space. REQUIRES: the weights of all these bundles were read before any of them is
// loaded.
using BoundWeights = std::map<std::pair<const Storage*, std::string>, std::shared_ptr<Storage>>;
Session load_session(Engine& engine, Bundle bundle, const std::string& directory, SessionOptions options,
                     BoundWeights* bound = nullptr);

}  // namespace sluice
