#include "fuzz_targets/mutate.h"

#include <boost/json.hpp>
#include <limits>

namespace sluice::test {
namespace {

namespace js = boost::json;

struct Place {
  js::value* value = nullptr;
  js::value* parent = nullptr;  // null at the root
  size_t position = 0;          // in the parent's list or object
  std::string path;
};

void collect(js::value& v, js::value* parent, size_t position, const std::string& path, std::vector<Place>& places) {
  places.push_back({&v, parent, position, path});
  if (v.is_array()) {
    js::array& list = v.get_array();
    for (size_t i = 0; i < list.size(); ++i) collect(list[i], &v, i, path + "[" + std::to_string(i) + "]", places);
  } else if (v.is_object()) {
    size_t i = 0;
    for (js::key_value_pair& pair : v.get_object()) {
      const std::string key(pair.key().data(), pair.key().size());
      collect(pair.value(), &v, i++, path.empty() ? key : path + "." + key, places);
    }
  }
}

std::string shown(const js::value& v) {
  const std::string s = js::serialize(v);
  return s.size() > 60 ? s.substr(0, 57) + "..." : s;
}

constexpr int64_t kWhole[] = {0,
                              1,
                              -1,
                              2,
                              3,
                              64,
                              65536,
                              1 << 20,
                              std::numeric_limits<int>::max(),
                              int64_t{1} << 31,
                              int64_t{1} << 32,
                              int64_t{1} << 40,
                              int64_t{1} << 62,
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()};
constexpr const char* kWords[] = {"",         "x",      "cpu:0",   "sim:0", "sim:99", "host",   "register",
                                  "variable", "buffer", "source",  "feed",  "sink",   "normal", "float32",
                                  "float64",  "int64",  "bool",    "copy",  "relu",   "nan",    "1e999",
                                  "compute",  "-1",     "../../x", "\n",    "run",    "emit"};

}  // namespace

struct Mutator::Impl {
  js::value document;
};

Mutator::Mutator(std::string document, uint64_t seed)
    : document_(std::move(document)), random_(seed), impl_(new Impl{js::parse(document_)}) {}
Mutator::~Mutator() { delete impl_; }

Mutant Mutator::next() {
  if (below(5) == 0) return bytes();
  js::value document = impl_->document;
  std::vector<Place> places;
  collect(document, nullptr, 0, "", places);
  const Place place = places[1 + below(places.size() - 1)];
  js::value& v = *place.value;
  Mutant mutant;
  mutant.path = place.path;
  mutant.change = place.path + ": " + shown(v) + " -> ";
  bool nested = false;
  switch (below(9)) {
    case 0: v = kWhole[below(std::size(kWhole))]; break;
    case 1:
      if (v.is_int64())
        v = static_cast<int64_t>(static_cast<uint64_t>(v.get_int64()) + static_cast<uint64_t>(below(9)) - 4);
      else
        v = std::numeric_limits<uint64_t>::max() - static_cast<uint64_t>(below(2));
      break;
    case 2: v = kWords[below(std::size(kWords))]; break;
    case 3: {  // what stands elsewhere
      const js::value other = *places[below(places.size())].value;
      v = other;
      break;
    }
    case 4: {
      const js::value kinds[] = {nullptr, true, js::array(),        js::object(),
                                 0.5,     -0.0, js::array{1, 2, 3}, js::array{js::array()}};
      v = kinds[below(std::size(kinds))];
      break;
    }
    case 5:  // gone
      if (place.parent->is_array()) {
        js::array& list = place.parent->get_array();
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(place.position));
      } else {
        js::object& object = place.parent->get_object();
        object.erase(object.begin() + static_cast<std::ptrdiff_t>(place.position));
      }
      mutant.change += "deleted";
      mutant.text = js::serialize(document);
      return mutant;
    case 6:  // twice
      if (place.parent->is_array()) {
        js::array& list = place.parent->get_array();
        const js::value copy = v;
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(place.position), copy);
      } else {
        const js::value copy = v;  // adding a key moves the others
        place.parent->get_object().insert_or_assign("unheard_of", copy);
      }
      mutant.change += "twice";
      mutant.text = js::serialize(document);
      return mutant;
    case 7:  // two places exchanged
      if (place.parent->is_array() && place.parent->get_array().size() > 1) {
        js::array& list = place.parent->get_array();
        js::value& other = list[below(list.size())];
        if (&other != &v) v.swap(other);
      } else {
        v = std::string(1 + below(4000), 'x');
      }
      break;
    default: nested = true;
  }
  mutant.change += nested ? "nested" : shown(v);
  if (nested) v = "the place";
  mutant.text = js::serialize(document);
  if (nested) {
    const size_t at = mutant.text.find("\"the place\"");
    const size_t depth = size_t{1} << below(16);
    mutant.text.replace(at, 11, std::string(depth, '[') + std::string(depth, ']'));
    mutant.structural = depth < 16;  // deeper is refused as a document
  }
  return mutant;
}

Mutant Mutator::bytes() {
  Mutant mutant;
  mutant.structural = false;
  mutant.text = document_;
  std::string& text = mutant.text;
  const size_t at = random_() % text.size();
  switch (below(7)) {
    case 0:
      text.resize(at);
      mutant.change = "cut at " + std::to_string(at);
      break;
    case 1:
      text[at] = static_cast<char>(random_());
      mutant.change = "byte " + std::to_string(at);
      break;
    case 2:
      text.insert(at, text.substr(random_() % text.size(), below(200)));
      mutant.change = "inserted at " + std::to_string(at);
      break;
    case 3:
      text.erase(at, 1 + below(100));
      mutant.change = "erased at " + std::to_string(at);
      break;
    case 4: {
      constexpr const char* kTokens[] = {
          "NaN", "1e999", "-0", "9223372036854775808", "\xff", "\xed\xa0\x80", "\\u0000", "\"a\":1,\"a\":2,", "//"};
      const char* token = kTokens[below(std::size(kTokens))];
      text.insert(at, token);
      mutant.change = "inserted " + std::string(token) + " at " + std::to_string(at);
      break;
    }
    case 5: {  // a number elsewhere
      const size_t digit = text.find_first_of("0123456789", at);
      if (digit != std::string::npos) text.replace(digit, 1, std::to_string(kWhole[below(std::size(kWhole))]));
      mutant.change = "number at " + std::to_string(digit);
      break;
    }
    default: text += text.substr(at); mutant.change = "repeated from " + std::to_string(at);
  }
  return mutant;
}

}  // namespace sluice::test
