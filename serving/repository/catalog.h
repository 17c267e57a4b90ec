#pragma once
// The content of the repositories: folders of models, their versions, their configs. Reads, changes nothing.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "serving/core/executor.h"
#include "serving/core/options.h"
#include "serving/repository/folder.h"

namespace sluice::serving {

// The place of a model, and what is known of it beside its folder.
struct Source {
  std::string name;
  Folder folder;
  std::string config = {};  // JSON that came with a load request; "": the folder's config.pbtxt, if there is one
  // The policy and labels of a list of models (model_list.h); these win over the config's.
  std::optional<inference::ModelVersionPolicy> policy = {};
  std::map<std::string, int64_t> labels = {};
};

// The catalog of the repositories, and of the list of models.
class Catalog {
 public:
  // Throws kNotFound for a repository that is none.
  explicit Catalog(const ServerOptions& options);
  std::vector<std::string> names() const;  // of all models, sorted
  // Throws kNotFound; kInvalidArgument for a name that none can have, and where there are two of it.
  Source find(const std::string& name) const;

 private:
  Folder::Links links() const {
    return options_.follow_links ? Folder::Links::kFollowedBeneath : Folder::Links::kRefused;
  }
  const ServerOptions& options_;
  std::vector<Folder> repositories_;
};

struct VersionFiles {
  int64_t number = 0;
  std::optional<Folder> folder;
  std::string fingerprint;
  std::string error;  // then it cannot be loaded
};

// A model as its files are now.
struct Draft {
  Source source;
  inference::ModelConfig config;  // looked through, not completed: that is each version's own
  std::map<std::string, int64_t> labels;
  // Those that its policy may serve, newest first. At most so many of them; what is broken does not count.
  std::vector<VersionFiles> versions;
  size_t most = 1;
  std::string fingerprint;  // of everything but the versions and which are served
};
Draft read_draft(Source source);

// Everything that an executor of the version needs, but the steps of an ensemble. Its paths lead through folders that
// are held, so they lead nowhere else when an instance is restarted.
struct Prepared {
  ExecutorSpec spec;
  std::vector<Folder> held;
};
// Throws Error naming model and version.
Prepared prepare(const Draft& draft, const VersionFiles& version, bool auto_config);

// "model 'm' version 2".
std::string who(const std::string& model, int64_t version);

}  // namespace sluice::serving
