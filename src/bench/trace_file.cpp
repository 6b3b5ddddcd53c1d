#include "bench/trace_file.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace barg::bench {
namespace {

constexpr std::size_t kMaxRow = 64 << 20;
constexpr double kMostMs = 1e13;  // three hundred years

std::string take_row(const Json& json, std::vector<TraceRow>& rows) {
  if (!json.is_object()) return "expected an object.";
  TraceRow row;
  const Json* at = json.find("timestamp");
  if (at == nullptr || !at->is_number() || std::fabs(at->as_double()) > kMostMs)
    return "\"timestamp\" (milliseconds) is missing.";
  row.at_s = at->as_double() / 1000;
  row.input_length = whole_member(json, "input_length", 1);
  row.output_length = whole_member(json, "output_length", 0);
  if (row.input_length < 0 || row.output_length < 0)
    return "\"input_length\" and \"output_length\" must be whole numbers.";
  if (const Json* ids = json.find("hash_ids"); ids != nullptr && ids->is_array()) {
    for (const Json& id : ids->as_array()) {
      if (id.type() != Json::Type::kInt || id.as_int() < 0) return "\"hash_ids\" must be whole numbers.";
      row.blocks.push_back(id.as_uint());
    }
  }
  rows.push_back(std::move(row));
  return {};
}

}  // namespace

Result<void> read_rows(const std::string& path, const std::function<std::string(const Json&)>& row) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(ErrorCode::kNotFound, "cannot open " + path + ".");
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string where = path + ":" + std::to_string(number) + ": ";
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line.size() > kMaxRow) return fail(ErrorCode::kTooLarge, where + "the line is too long.");
    const Result<Json> json = parse_json(line);
    if (!json) return fail(ErrorCode::kBadFile, where + json.error().message);
    const std::string problem = row(*json);
    if (!problem.empty()) return fail(ErrorCode::kBadFile, where + problem);
  }
  if (in.bad()) return fail(ErrorCode::kIo, "cannot read " + path + ".");
  return {};
}

int whole_member(const Json& row, std::string_view key, int low) {
  const Json* value = row.find(key);
  if (value == nullptr || value->type() != Json::Type::kInt) return -1;
  return value->as_int() < low || value->as_int() > 10'000'000 ? -1 : static_cast<int>(value->as_int());
}

Result<std::vector<TraceRow>> read_trace(const std::string& path) {
  std::vector<TraceRow> rows;
  const Result<void> read = read_rows(path, [&](const Json& json) { return take_row(json, rows); });
  if (!read) return std::unexpected(read.error());
  if (rows.empty()) return fail(ErrorCode::kBadFile, path + " has no rows.");
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TraceRow& a, const TraceRow& b) { return a.at_s < b.at_s; });
  return rows;
}

}  // namespace barg::bench
