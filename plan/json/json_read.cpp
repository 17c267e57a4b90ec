#include <boost/json.hpp>
#include <filesystem>

#include "base/files/file.h"
#include "base/old_attrs.h"
#include "plan/json/json.h"
#include "plan/json/json_fields-inl.h"

namespace sluice::plan {
namespace {

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
    const bool typed = c.has("results");
    AttrCall call{c.string("op"), read_attrs(c, "attrs"), c.ints("operands", typed ? kNoOperand : 0)};
    if (typed) {
      call.results = c.list<TensorSpec>("results", [&reader](const js::value& result, const Path& at) {
        Fields r(reader, result, at);
        TensorSpec spec = r.spec();
        r.done();
        return spec;
      });
      if (call.results.empty()) reader.wrong(c.path("results"), "none; a call gives a value at least");
    }
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
Derivation read_derivation(Fields& outer) {
  const Path path = outer.path("derived");
  Fields f(outer.reader(), outer.at("derived"), path);
  Derivation v;
  v.op = f.string("op");
  v.attrs = read_attrs(f, "attrs");
  v.inputs = f.list<int>("inputs", [&f](const js::value& one, const Path& p) {
    return static_cast<int>(f.reader().integer(one, p, -1, std::numeric_limits<int>::max()));
  });
  v.spec = f.spec();
  f.done();
  return v;
}
void read(Fields& f, PackedCopy& v) {
  v.name = f.string("name");
  v.variable = f.integer("variable");
  v.format = f.string("format");
  v.bytes = f.bytes("bytes");
  if (f.has("derived")) v.derived = read_derivation(f);
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
  if (f.has("role")) v.role = f.name("role", role_name, kRoles);
  if (f.has("placed")) v.placed = f.name("placed", placed_name, kPlacedReasons);
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
  if (f.has("axes")) v.axes = f.ints("axes");
  if (!f.has("extent_of")) return;
  const Path extent_path = f.path("extent_of");
  Fields of(f.reader(), f.at("extent_of"), extent_path);
  v.extent_of = ExtentOf{of.string("output"), of.integer("axis"), of.string("dim")};
  of.done();
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
