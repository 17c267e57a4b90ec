#include <boost/json.hpp>
#include <charconv>
#include <filesystem>
#include <limits>

#include "base/file.h"
#include "base/old_attrs.h"
#include "plan/json.h"
#include "plan/machine.h"

namespace sluice::plan {
namespace {

namespace js = boost::json;

// Where in the document we are: a chain on the stack, spelled out only in errors.
struct Path {
  const Path* parent = nullptr;
  std::string_view key;
  int64_t position = -1;
  std::string str() const {
    const std::string up = parent ? parent->str() : "";
    if (position >= 0) return fmt::format("{}[{}]", up, position);
    return up.empty() ? std::string(key) : up + "." + std::string(key);
  }
};

std::string shown(const js::value& v) {
  std::string s = js::serialize(v);
  return s.size() > 40 ? s.substr(0, 37) + "..." : s;
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  [[noreturn]] void wrong(const Path& path, const std::string& what) const {
    fail(ErrorKind::kValue, "{}: {}: {}", file_, path.str(), what);
  }
  [[noreturn]] void wrong_type(const Path& path, const js::value& v, const char* need) const {
    wrong(path, fmt::format("wrong type: {}; must be {}", shown(v), need));
  }

  const js::object& object(const js::value& v, const Path& path) const {
    if (!v.is_object()) wrong_type(path, v, "an object");
    return v.get_object();
  }
  const js::array& array(const js::value& v, const Path& path) const {
    if (!v.is_array()) wrong_type(path, v, "a list");
    return v.get_array();
  }
  std::string string(const js::value& v, const Path& path) const {
    if (!v.is_string()) wrong_type(path, v, "a string");
    return std::string(v.get_string());
  }
  int64_t integer(const js::value& v, const Path& path, int64_t low, int64_t high) const {
    if (v.is_uint64()) wrong(path, fmt::format("out of range: {}; must be in {} to {}", shown(v), low, high));
    if (!v.is_int64()) wrong_type(path, v, "a whole number");
    const int64_t n = v.get_int64();
    if (n < low || n > high) wrong(path, fmt::format("out of range: {}; must be in {} to {}", n, low, high));
    return n;
  }
  uint64_t bytes(const js::value& v, const Path& path) const {
    if (v.is_uint64()) return v.get_uint64();
    return static_cast<uint64_t>(integer(v, path, 0, std::numeric_limits<int64_t>::max()));
  }
  double number(const js::value& v, const Path& path) const {
    if (v.is_int64()) return static_cast<double>(v.get_int64());
    if (!v.is_string()) wrong_type(path, v, "a whole number or a number in quotes");
    const js::string& s = v.get_string();
    double n = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
    if (error != std::errc() || end != s.data() + s.size()) wrong_type(path, v, "a number");
    return n;
  }
  // The errors of the parsers in base, with the field's path.
  template <class Parse>
  auto parsed(const js::value& v, const Path& path, Parse parse) const {
    const std::string text = string(v, path);
    try {
      return parse(text);
    } catch (const Error& e) {
      wrong(path, e.what());
    }
  }

 private:
  const std::string& file_;
};

// An object whose every key must be asked for: leftovers are unknown keys.
class Fields {
 public:
  Fields(const Reader& reader, const js::value& v, const Path& path)
      : reader_(reader), object_(reader.object(v, path)), path_(path) {}
  void done() const {
    if (read_.size() == object_.size()) return;
    for (const auto& entry : object_) {
      const std::string_view key(entry.key().data(), entry.key().size());
      bool known = false;
      for (const char* r : read_) known |= key == r;
      if (!known) reader_.wrong(path(std::string(key).c_str()), "unknown field; this build does not know it");
    }
    reader_.wrong(path_, "a field appears twice; each must appear once");
  }
  Path path(const char* key) const { return {path_.key.empty() && path_.position < 0 ? nullptr : &path_, key, -1}; }
  const js::value& at(const char* key) {
    const js::value* v = object_.if_contains(key);
    if (!v) reader_.wrong(path(key), "missing; every field must be given");
    read_.push_back(key);
    return *v;
  }
  bool has(const char* key) const { return object_.if_contains(key) != nullptr; }
  int integer(const char* key, int64_t low = 0) {
    return static_cast<int>(reader_.integer(at(key), path(key), low, std::numeric_limits<int>::max()));
  }
  uint64_t bytes(const char* key) { return reader_.bytes(at(key), path(key)); }
  double number(const char* key) { return reader_.number(at(key), path(key)); }
  std::string string(const char* key) { return reader_.string(at(key), path(key)); }
  bool boolean(const char* key) {
    const js::value& v = at(key);
    if (!v.is_bool()) reader_.wrong_type(path(key), v, "true or false");
    return v.get_bool();
  }
  DeviceId device(const char* key) {
    return reader_.parsed(at(key), path(key), [](const std::string& s) { return parse_device(s); });
  }
  DType dtype(const char* key) {
    return reader_.parsed(at(key), path(key), [](const std::string& s) { return parse_dtype(s); });
  }
  // One of an enum's names, given by its name function.
  template <class Enum>
  Enum name(const char* key, const char* (*name_of)(Enum), int count) {
    const std::string text = string(key);
    std::string known;
    for (int i = 0; i < count; ++i) {
      if (text == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
      known += (i ? ", " : "") + std::string(name_of(static_cast<Enum>(i)));
    }
    reader_.wrong(path(key), fmt::format("unknown name: '{}'; must be one of {}", text, known));
  }
  // A list, each element read by `one(value, path)`.
  template <class T, class One>
  std::vector<T> list(const char* key, One one) {
    const Path here = path(key);
    const js::array& values = reader_.array(at(key), here);
    std::vector<T> result;
    result.reserve(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      result.push_back(one(values[i], Path{&here, {}, static_cast<int64_t>(i)}));
    }
    return result;
  }
  std::vector<int> ints(const char* key) {
    return list<int>(key, [this](const js::value& v, const Path& p) {
      return static_cast<int>(reader_.integer(v, p, 0, std::numeric_limits<int>::max()));
    });
  }
  Shape shape(const char* key, int64_t low) {
    const std::vector<int64_t> dims = list<int64_t>(key, [&](const js::value& v, const Path& p) {
      return reader_.integer(v, p, low, std::numeric_limits<int64_t>::max());
    });
    if (dims.size() > kMaxRank) {
      reader_.wrong(path(key), fmt::format("too long: {} dims; at most {}", dims.size(), kMaxRank));
    }
    return Shape(dims);
  }
  TensorSpec spec() {
    return {dtype("dtype"), shape("shape", 0), shape("strides", std::numeric_limits<int64_t>::min())};
  }
  // The errors of a function in base, with a field's path.
  template <class F>
  void checked(const char* key, F f) const {
    try {
      f();
    } catch (const Error& e) {
      reader_.wrong(path(key), e.what());
    }
  }
  const Reader& reader() const { return reader_; }

 private:
  const Reader& reader_;
  const js::object& object_;
  const Path& path_;
  std::vector<const char*> read_;
};

NamedAttrs read_attrs(Fields& f, const char* key);

TensorType read_type(const Reader& reader, const js::value& v, const Path& path) {
  Fields f(reader, v, path);
  const TensorType type{f.dtype("dtype"), f.shape("shape", 0)};
  f.done();
  return type;
}

AttrGraph read_graph(const Reader& reader, const js::value& v, const Path& path) {
  Fields f(reader, v, path);
  AttrGraph graph{f.integer("inputs"), {}, {}};
  graph.calls = f.list<AttrCall>("calls", [&reader](const js::value& one, const Path& p) {
    Fields c(reader, one, p);
    AttrCall call{c.string("op"), read_attrs(c, "attrs"), c.ints("operands")};
    c.done();
    return call;
  });
  graph.outputs = f.ints("outputs");
  f.done();
  return graph;
}

// An attribute that says its kind by a key: {"double": "0.5"}. None: another object.
std::optional<Attr> read_tagged(const Reader& reader, const js::value& v, const Path& path) {
  if (v.get_object().size() != 1) return std::nullopt;
  Fields f(reader, v, path);
  const js::string_view tag = v.get_object().begin()->key();
  const auto dtype = [&reader](const js::value& one, const Path& p) {
    return reader.parsed(one, p, [](const std::string& s) { return parse_dtype(s); });
  };
  const auto type = [&reader](const js::value& one, const Path& p) { return read_type(reader, one, p); };
  if (tag == "double") return f.number("double");
  if (tag == "dtype") return f.dtype("dtype");
  if (tag == "type") return type(f.at("type"), f.path("type"));
  if (tag == "types") return f.list<TensorType>("types", type);
  if (tag == "dtypes") return f.list<DType>("dtypes", dtype);
  if (tag == "graph") return read_graph(reader, f.at("graph"), f.path("graph"));
  if (tag == "doubles")
    return f.list<double>("doubles", [&](const js::value& one, const Path& p) { return reader.number(one, p); });
  if (tag == "strings")
    return f.list<std::string>("strings", [&](const js::value& one, const Path& p) { return reader.string(one, p); });
  if (tag == "bools") {
    return f.list<bool>("bools", [&](const js::value& one, const Path& p) {
      if (!one.is_bool()) reader.wrong_type(p, one, "true or false");
      return one.get_bool();
    });
  }
  return std::nullopt;
}

Attr read_attr(const Reader& reader, const js::value& v, const Path& path) {
  switch (v.kind()) {
    case js::kind::null: return NoAttr{};
    case js::kind::bool_: return v.get_bool();
    case js::kind::int64: return v.get_int64();
    case js::kind::string: return std::string(v.get_string());
    case js::kind::array: {
      Ints ints;
      const js::array& values = v.get_array();
      for (size_t i = 0; i < values.size(); ++i) {
        ints.push_back(reader.integer(values[i], Path{&path, {}, static_cast<int64_t>(i)},
                                      std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
      }
      return ints;
    }
    case js::kind::object:
      if (std::optional<Attr> tagged = read_tagged(reader, v, path)) return *tagged;
      [[fallthrough]];
    default:
      reader.wrong_type(path, v,
                        R"(null, a bool, a whole number, a string, a list, or an object of one key: double, )"
                        R"(dtype, type, graph, bools, doubles, strings, dtypes or types)");
  }
}

NamedAttrs read_attrs(Fields& f, const char* key) {
  const Path path = f.path(key);
  NamedAttrs attrs;
  for (const auto& entry : f.reader().object(f.at(key), path)) {
    const std::string name(entry.key().data(), entry.key().size());
    attrs.emplace_back(name, read_attr(f.reader(), entry.value(), Path{&path, name, -1}));
  }
  return attrs;
}

View read_view(const Reader& reader, const js::value& v, const Path& path) {
  Fields f(reader, v, path);
  View view;
  view.base = f.name<BaseKind>("base", base_kind_name, 3);
  view.index = f.integer("index", -1);  // an absent input
  view.token = f.integer("token");
  view.offset = f.bytes("offset");
  view.spec = f.spec();
  if (f.has("packed")) view.packed = f.integer("packed");
  f.done();
  return view;
}

void read(Fields& f, Space& v) {
  v.kind = f.name<SpaceKind>("kind", space_kind_name, 3);
  v.device = f.device("device");
}
void read(Fields& f, Stream& v) {
  v.name = f.string("name");
  v.device = f.device("device");
  v.kind = f.name<StreamKind>("kind", stream_kind_name, 5);
  v.index = f.integer("index");
  v.cores = f.integer("cores", 1);
}
void read(Fields& f, Arena& v) {
  v.name = f.string("name");
  v.space = f.integer("space");
  v.stream = f.integer("stream", -1);
  v.bytes = f.bytes("bytes");
  v.lower_bound = f.bytes("lower_bound");
}
void read(Fields& f, Buffer& v) {
  v.name = f.string("name");
  v.arena = f.integer("arena");
  v.offset = f.bytes("offset");
  v.bytes = f.bytes("bytes");
}
void read(Fields& f, Variable& v) {
  v.name = f.string("name");
  v.space = f.integer("space");
  v.spec = f.spec();
  v.constant = f.boolean("constant");
}
void read(Fields& f, PackedCopy& v) {
  v.name = f.string("name");
  v.variable = f.integer("variable");
  v.format = f.string("format");
  v.bytes = f.bytes("bytes");
}
void read(Fields& f, Kernel& v) {
  const auto view = [&f](const js::value& value, const Path& path) { return read_view(f.reader(), value, path); };
  v.name = f.string("name");
  v.op = f.string("op");
  v.attrs = read_attrs(f, "attrs");
  v.inputs = f.list<View>("inputs", view);
  f.checked("attrs", [&v] { read_old_attrs(v.op, v.inputs.size(), v.attrs); });
  v.outputs = f.list<View>("outputs", view);
  v.workspace = f.integer("workspace", -1);
  v.source.file = f.string("file");
  v.source.line = f.integer("line");
  v.module = f.string("module");
  if (f.has("role")) v.role = f.name("role", role_name, 4);
  v.cost_ns = f.number("cost_ns");
  v.collective = f.integer("collective", -1);
}
Instr read_instr(const Reader& reader, const js::value& v, const Path& path) {
  const js::array& pair = reader.array(v, path);
  if (pair.size() != 2) reader.wrong_type(path, v, R"(a pair such as ["run", 3])");
  const std::string name = reader.string(pair[0], path);
  Instr instr;
  if (name == "emit") {
    instr.kind = InstrKind::kEmit;
  } else if (name == "release") {
    instr.kind = InstrKind::kRelease;
  } else if (name != "run") {
    reader.wrong(path, fmt::format("unknown name: '{}'; must be one of run, emit, release", name));
  }
  instr.index = static_cast<int>(reader.integer(pair[1], path, 0, std::numeric_limits<int>::max()));
  return instr;
}
void read(Fields& f, Actor& v) {
  v.name = f.string("name");
  v.stream = f.integer("stream");
  v.role = f.name<ActorRole>("role", actor_role_name, 4);
  v.program = f.list<Instr>(
      "program", [&f](const js::value& value, const Path& path) { return read_instr(f.reader(), value, path); });
  if (f.has("starts")) v.starts = f.integer("starts", 1);
}
void read(Fields& f, Register& v) {
  v.name = f.string("name");
  v.producer = f.integer("producer");
  v.quota = f.integer("quota");
  v.bytes = f.bytes("bytes");
  v.slots = f.ints("slots");
  v.emit_every = f.integer("emit_every");
  v.initial_tokens = f.integer("initial_tokens");
  v.in_place_of = f.integer("in_place_of", -1);
}
void read(Fields& f, Edge& v) {
  v.reg = f.integer("reg");
  v.consumer = f.integer("consumer");
  v.take = f.integer("take");
  v.hold = f.integer("hold");
}
void read(Fields& f, Input& v) {
  v.name = f.string("name");
  v.reg = f.integer("reg");
  v.spec = f.spec();
}
void read(Fields& f, Output& v) {
  v.name = f.string("name");
  const Path path = f.path("view");
  v.view = read_view(f.reader(), f.at("view"), path);
}

template <class T>
void read_section(Fields& f, const char* key, std::vector<T>& entities) {
  entities = f.list<T>(key, [&f](const js::value& value, const Path& path) {
    Fields fields(f.reader(), value, path);
    T entity;
    read(fields, entity);
    fields.done();
    return entity;
  });
}

// Of a file that people write: numbers without quotes.
double number(Fields& f, const char* key, bool zero_too) {
  const js::value& v = f.at(key);
  const double n = v.is_double() ? v.get_double() : f.reader().number(v, f.path(key));
  if (!(n > 0 || (zero_too && n == 0)) || n > 1e18)
    f.reader().wrong(f.path(key), fmt::format("out of range: {}; must be a {}number up to 1e18", n,
                                              zero_too ? "non-negative " : "positive "));
  return n;
}

// A list of objects, each read by `one`.
template <class T>
std::vector<T> objects(Fields& f, const char* key, T (*one)(Fields&)) {
  return f.list<T>(key, [&](const js::value& v, const Path& path) {
    Fields fields(f.reader(), v, path);
    T result = one(fields);
    fields.done();
    return result;
  });
}

}  // namespace

Plan from_json(std::string_view text, const std::string& file_name) {
  const js::value document = read_document(text, file_name, "plan");
  const Reader reader(file_name);
  const Path root;
  Plan plan;
  Fields f(reader, document, root);
  // Before anything else: another version may mean anything.
  plan.schema_version = f.integer("schema_version");
  SLUICE_CHECK(plan.schema_version == kSchemaVersion, "{}: version {}: {} than this build, which reads version {}; {}",
               file_name, plan.schema_version, plan.schema_version > kSchemaVersion ? "newer" : "older", kSchemaVersion,
               plan.schema_version > kSchemaVersion ? "upgrade Sluice, or compile graph.txt with this release"
                                                    : "versions begin with 1");
  plan.name = f.string("name");
  plan.options = read_attrs(f, "options");
  plan.target = f.string("target");
  const int starts = f.has("micro_batches") ? f.integer("micro_batches", 1) : 1;  // of all, in plans of old
  read_section(f, "spaces", plan.spaces);
  read_section(f, "streams", plan.streams);
  read_section(f, "arenas", plan.arenas);
  read_section(f, "buffers", plan.buffers);
  read_section(f, "variables", plan.variables);
  if (f.has("packed")) read_section(f, "packed", plan.packed);
  read_section(f, "kernels", plan.kernels);
  read_section(f, "actors", plan.actors);
  read_section(f, "registers", plan.registers);
  read_section(f, "edges", plan.edges);
  read_section(f, "inputs", plan.inputs);
  read_section(f, "outputs", plan.outputs);
  plan.certificate = f.ints("certificate");
  f.done();
  for (Actor& actor : plan.actors) {
    if (starts != 1 && is_started(actor)) actor.starts = starts;
  }
  return plan;
}

Machine machine_from_json(std::string_view text, const std::string& file_name) {
  const js::value document = read_document(text, file_name, "cost file");
  const Reader reader(file_name);
  const Path root;
  Fields f(reader, document, root);
  Machine machine;
  machine.links = objects<LinkCost>(f, "links", [](Fields& link) {
    const std::vector<std::string> ends = link.list<std::string>(
        "between", [&](const js::value& v, const Path& path) { return link.reader().string(v, path); });
    if (ends.size() != 2) link.reader().wrong(link.path("between"), fmt::format("{} names; must be two", ends.size()));
    return LinkCost{ends[0], ends[1], number(link, "latency_ns", true), number(link, "bytes_per_s", false)};
  });
  if (f.has("kernels"))
    machine.kernels = objects<KernelCost>(f, "kernels", [](Fields& kernel) {
      return KernelCost{kernel.string("name"), number(kernel, "cost_ns", true)};
    });
  f.done();
  return machine;
}

Plan load_plan(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool bundle = fs::is_directory(path, ignored);
  const std::string file = bundle ? path + "/plan.json" : path;
  SLUICE_CHECK_KIND(kIo, fs::exists(file, ignored),
                    "{}: cannot be read: no such file; a plan is a plan.json file or a bundle directory", file);
  return from_json(read_file(file, bundle ? Links::kRefuse : Links::kFollow), file);
}

}  // namespace sluice::plan
