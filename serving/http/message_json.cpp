#include "serving/http/message_json.h"

#include <boost/json/serialize.hpp>

namespace sluice::serving {

namespace {

namespace json = boost::json;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

json::value value_of(const Message& message);

// The field, or its element `i` where it is repeated.
json::value value_of(const Message& m, const FieldDescriptor* f, int i) {
  const Reflection& r = *m.GetReflection();
  const bool repeated = f->is_repeated();
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return repeated ? r.GetRepeatedInt32(m, f, i) : r.GetInt32(m, f);
    case FieldDescriptor::CPPTYPE_INT64: return repeated ? r.GetRepeatedInt64(m, f, i) : r.GetInt64(m, f);
    case FieldDescriptor::CPPTYPE_UINT32: return repeated ? r.GetRepeatedUInt32(m, f, i) : r.GetUInt32(m, f);
    case FieldDescriptor::CPPTYPE_UINT64: return repeated ? r.GetRepeatedUInt64(m, f, i) : r.GetUInt64(m, f);
    case FieldDescriptor::CPPTYPE_DOUBLE: return repeated ? r.GetRepeatedDouble(m, f, i) : r.GetDouble(m, f);
    case FieldDescriptor::CPPTYPE_FLOAT: return repeated ? r.GetRepeatedFloat(m, f, i) : r.GetFloat(m, f);
    case FieldDescriptor::CPPTYPE_BOOL: return repeated ? r.GetRepeatedBool(m, f, i) : r.GetBool(m, f);
    case FieldDescriptor::CPPTYPE_ENUM:
      return json::string((repeated ? r.GetRepeatedEnum(m, f, i) : r.GetEnum(m, f))->name());
    case FieldDescriptor::CPPTYPE_STRING:
      return json::string(repeated ? r.GetRepeatedString(m, f, i) : r.GetString(m, f));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return value_of(repeated ? r.GetRepeatedMessage(m, f, i) : r.GetMessage(m, f));
  }
  return nullptr;
}

std::string key_of(const Message& entry) {
  const json::value key = value_of(entry, entry.GetDescriptor()->map_key(), 0);
  return key.is_string() ? std::string(key.get_string()) : json::serialize(key);
}

json::value value_of(const Message& message) {
  json::object object;
  const Reflection& r = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const f = message.GetDescriptor()->field(i);
    if (f->is_map()) {
      json::object& map = object[f->name()].emplace_object();
      for (int e = 0; e < r.FieldSize(message, f); ++e) {
        const Message& entry = r.GetRepeatedMessage(message, f, e);
        map[key_of(entry)] = value_of(entry, f->message_type()->map_value(), 0);
      }
    } else if (f->is_repeated()) {
      json::array& array = object[f->name()].emplace_array();
      for (int e = 0; e < r.FieldSize(message, f); ++e) array.push_back(value_of(message, f, e));
    } else if (!f->has_presence() || r.HasField(message, f)) {
      object[f->name()] = value_of(message, f, 0);
    }
  }
  return object;
}

}  // namespace

std::string to_json(const Message& message) { return json::serialize(value_of(message)); }

}  // namespace sluice::serving
