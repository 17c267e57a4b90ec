// The C API on top of the C++ one: texts, files of tensors, what is logged.
#include "runtime/api/c_support.h"
#include "sluice/diagnostics.h"

namespace api = sluice::api;
using namespace sluice::c_api;

const char* sluice_text_data(const sluice_text* text) {
  return answered("", [&] { return get<std::string>(text, "", "")->c_str(); });
}
void sluice_text_destroy(sluice_text* text) { handles().remove(text); }

const char* sluice_dtype_name(sluice_dtype dtype) {
  return answered<const char*>(nullptr, [&] { return api::dtype_name(dtype_of(dtype, "")); });
}
size_t sluice_dtype_size(sluice_dtype dtype) {
  return answered<size_t>(0, [&] { return api::dtype_size(dtype_of(dtype, "")); });
}

sluice_status* sluice_tensors_load(const char* path, sluice_tensors** tensors) {
  return guarded([&] {
    const char* where = "sluice_tensors_load";
    check_pointer(tensors, where, "tensors");
    auto loaded = std::make_shared<NamedTensors>(api::load_tensors(check_pointer(path, where, "path")));
    *tensors = handles().add<sluice_tensors>(std::move(loaded));
  });
}
void sluice_tensors_destroy(sluice_tensors* tensors) { handles().remove(tensors); }

size_t sluice_tensors_count(const sluice_tensors* tensors) {
  return answered<size_t>(0, [&] { return get<NamedTensors>(tensors, "", "")->size(); });
}
const char* sluice_tensors_name(const sluice_tensors* tensors, size_t index) {
  return answered<const char*>(nullptr, [&] { return get<NamedTensors>(tensors, "", "")->at(index).name.c_str(); });
}
sluice_status* sluice_tensors_get(const sluice_tensors* tensors, size_t index, sluice_tensor** tensor) {
  return guarded([&] {
    const char* where = "sluice_tensors_get";
    check_pointer(tensor, where, "tensor");
    const auto all = get<NamedTensors>(tensors, where, "tensors");
    if (index >= all->size())
      fail(ErrorKind::kIndex,
           std::string(where) + ": index " + std::to_string(index) + "; there are " + std::to_string(all->size()));
    *tensor = add_tensor((*all)[index].tensor);
  });
}

sluice_status* sluice_tensors_save(const char* path, const char* const* names, sluice_tensor* const* tensors,
                                   size_t count) {
  return guarded([&] {
    const char* where = "sluice_tensors_save";
    check_pointer(path, where, "path");
    if (count > 0) check_pointer(names, where, "names");
    const auto given = tensors_of(tensors, count, count, where);
    NamedTensors named;
    for (size_t i = 0; i < count; ++i) named.push_back({check_pointer(names[i], where, "a name"), given[i]});
    api::save_tensors(path, named);
  });
}

sluice_status* sluice_describe(int json, sluice_text** text) {
  return guarded([&] {
    check_pointer(text, "sluice_describe", "text");
    give_text(api::describe(json != 0), text);
  });
}
sluice_status* sluice_set_log(const char* spec) {
  return guarded([&] { api::set_log(check_pointer(spec, "sluice_set_log", "spec")); });
}
sluice_status* sluice_log_spec(sluice_text** text) {
  return guarded([&] {
    check_pointer(text, "sluice_log_spec", "text");
    give_text(api::log_spec(), text);
  });
}
sluice_status* sluice_set_log_sink(void (*sink)(void* context, const char* line), void* context) {
  return guarded([&] {
    if (sink == nullptr) return api::set_log_sink(nullptr);
    api::set_log_sink([sink, context](std::string_view line) { sink(context, std::string(line).c_str()); });
  });
}
