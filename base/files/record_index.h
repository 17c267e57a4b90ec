#pragma once
// Record files: TensorFlow's framing of records, with an index at the end, which sluice.data.RecordWriter writes.
//
// A record is its length (8 bytes), a masked CRC-32C of that, its bytes, and a masked CRC-32C of them. The last but one
// record of a file with an index is the index, and the last says where it begins.
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct RecordPlace {
  int64_t offset = 0, bytes = 0, label = 0;  // of the content in the file; 0 where there is no index
};

// The records of a file, without the index. With `lengths`, they are found by reading all lengths, else by the index
// where there is one. Throws kIo where the file cannot be read, kValue "<path>: <what>" where a length, the index or
// what it says is broken. What records hold is not read.
std::vector<RecordPlace> record_places(const std::string& path, bool lengths);

}  // namespace sluice
