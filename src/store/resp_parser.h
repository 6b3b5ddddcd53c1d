// RespParser: RESP2 replies of a server that is not trusted, piece by piece as they arrive.
//
// Lengths are bounded before anything is kept, nesting is bounded, and the data of a bulk string is not
// collected: the user is told its length and takes the bytes where they belong (they may also bypass the
// parser: skip()). One thread. After kBad the parser answers kBad for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace barg::store {

class RespParser {
 public:
  struct Limits {
    std::uint64_t max_bulk = 64ULL << 20;
    std::uint64_t max_array = 65536;  ///< elements of one array
    std::size_t max_line = 1024;      ///< of a status or error, without its end
    std::size_t max_depth = 4;        ///< arrays in arrays
  };

  enum class Token : std::uint8_t {
    kMore,     ///< all input is used; nothing whole in it
    kSimple,   ///< text()
    kError,    ///< text()
    kInteger,  ///< integer()
    kNull,     ///< a bulk string or array that is not there
    kBulk,     ///< length() bytes follow: as kData until kBulkEnd
    kData,     ///< data(): within the input
    kBulkEnd,
    kArray,  ///< length() elements follow
    kBad,    ///< text() says why
  };

  RespParser() = default;
  explicit RespParser(Limits limits) : limits_(limits) {}

  /// Takes one token off the front of `in`.
  Token next(std::string_view& in);

  std::string_view text() const { return text_; }
  std::int64_t integer() const { return integer_; }
  std::uint64_t length() const { return length_; }
  std::string_view data() const { return data_; }
  /// The token just returned was the last of its reply.
  bool reply_done() const { return done_; }

  /// Bytes of the current bulk string that have not come yet.
  std::uint64_t bulk_left() const { return state_ == State::kBulkData ? left_ : 0; }
  /// They came another way. REQUIRES n <= bulk_left().
  void skip(std::uint64_t n) { left_ -= n; }

 private:
  enum class State : std::uint8_t { kLine, kBulkData, kBulkCr, kBulkLf, kBad };

  Token bad(std::string_view why);
  Token line(std::string_view s);
  Token sized(char type, std::string_view digits);
  Token value(Token t);  ///< one value is whole: closes the arrays that end with it

  Limits limits_;
  State state_ = State::kLine;
  std::string line_;                 ///< what has come of a line that was cut
  std::vector<std::uint64_t> open_;  ///< elements still to come, by nesting
  std::uint64_t left_ = 0, length_ = 0;
  std::int64_t integer_ = 0;
  std::string text_;
  std::string_view data_;
  bool done_ = false;
};

}  // namespace barg::store
