// Dialect as data: the one description of how a family writes tool calls. Private to src/text; constant, any thread.
//
// A form is one way to write a run of calls; white space may stand wherever two of its parts meet:
//
//   run  = open[0] open[1].. call { separator call } close[0] close[1]
//   call = call_open  OBJECT                                                   call_close      head kObject
//        | call_open [WORDS aside_close] lead NAME [id_mark ID] name_end args_open ARGS args_close  call_close      head kNamed
//   WORDS  = anything short without the beginning of aside_close, and read over: which server has the tool
//   OBJECT = a JSON object with members for name, arguments and maybe an id (kNameKeys, ...)
//   ARGS   = kJson:   a JSON object
//            kTags:   { key_open KEY key_end value_open VALUE value_close }      args_close ends them, and is required
//            kPython: KEY=VALUE, ...)   with Python's literals                   the name ends with "("
//            kGemma:  {KEY:VALUE,...}   strings between <|"|>, bare keys
//
// What the parser (output_call.h) makes of it: it is strict until a call's name and the start of its arguments are
// certain, and lenient about closing markers after the arguments. What the grammar of constrained decoding makes of
// it, for tool_choice required or named in the model's own format: the same run, with NAME an alternative of the
// declared names, ARGS the tool's schema (kJson as JSON Schema; kTags one VALUE rule a property, strings as anything
// without value_close; kPython and kGemma with their literals), white space as the family's template writes it, one call
// where calls may not be parallel, and every literal that is one added token as that token (BoundDialect). Forms are
// tried in order; the first is the one that the family's template writes, so that is the one to generate.
//
// The history normaliser needs call ids (`indexed`: functions.NAME:IDX); everything else of the history is the
// template's own business.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace barg::text {

/// Where a form may begin.
enum class Where : std::uint8_t {
  kAnywhere,
  kLine,   ///< where nothing but white space stands before it on its line
  kStart,  ///< where nothing but white space came before in the answer, or since reasoning or the last call
};

enum class Head : std::uint8_t { kObject, kNamed };
enum class Arguments : std::uint8_t { kJson, kTags, kPython, kGemma };

/// How a value without quotes becomes JSON.
enum class Typing : std::uint8_t { kSchema, kString, kJson };

struct KeyEnd {
  std::string_view text{};
  Typing typing = Typing::kSchema;
};

struct Tags {
  std::string_view key_open;
  std::array<KeyEnd, 3> key_ends;   ///< of several that fit, the longest
  std::string_view value_open{};
  std::string_view value_close;
  bool lines = false;               ///< one newline directly inside each end of a value is layout
};

struct CallForm {
  Where where = Where::kAnywhere;
  std::array<std::string_view, 3> open{};
  std::string_view separator{};
  std::array<std::string_view, 2> close{};
  std::string_view call_open{};
  std::string_view aside_close{};   ///< call_open opens something that is no part of the call, and this closes it
  Head head = Head::kObject;
  std::string_view lead{};
  std::string_view name_prefix{};   ///< may precede the name and is no part of it
  std::string_view name_suffix{};   ///< ends the name and is no part of it; required where not empty
  bool indexed = false;             ///< ":IDX" follows the name; prefix, name and index are the call's id
  std::string_view id_mark{};       ///< an id may follow the name
  std::string_view name_end{};
  bool name_end_optional = false;
  std::string_view args_open{};
  Arguments arguments = Arguments::kJson;
  const Tags* tags = nullptr;       ///< kTags
  std::string_view args_close{};
  std::string_view call_close{};
  bool late_id = false;             ///< an id may follow the arguments, which wait for it while they are short
  bool bare = false;                ///< nothing marks it: only an object of exactly the known members is a call
  bool declared_only = false;       ///< a name that no tool has makes it text
};

/// Messages with headers (Harmony):
///   start ROLE [recipient] [channel CHANNEL [recipient] [constrain TYPE]] message BODY end
/// The prompt ends behind the first start and role.
struct Channels {
  std::string_view start, channel, constrain, message;
  std::array<std::string_view, 3> ends;
  std::string_view reasoning_channel;
  std::string_view recipient;       ///< "to="
  std::string_view function_prefix; ///< of a recipient that is a function
  std::array<std::string_view, 3> nobody; ///< recipients that are no tool
};

/// A template whose source contains all of these (and not `none`) speaks the dialect.
struct Evidence {
  std::array<std::string_view, 2> all{};
  std::string_view none{};
};

struct Dialect {
  std::string_view name;
  std::string_view summary;
  std::span<const std::string_view> aliases{};   ///< what other servers call it
  std::span<const Evidence> evidence{};          ///< any of them
  std::span<const CallForm> forms{};
  const Channels* channels = nullptr;
  std::span<const std::string_view> call_ends{}; ///< end tokens after which the model waits for a result
  std::string_view answer_open{}, answer_close{}; ///< around the answer, where the reasoning markers have none
  bool keep_reasoning_in_text = false;           ///< reasoning goes out as text, in its markers
};

inline constexpr std::array<std::string_view, 3> kNameKeys = {"name", "tool_name", "function"};
inline constexpr std::array<std::string_view, 2> kArgumentKeys = {"arguments", "parameters"};
inline constexpr std::array<std::string_view, 2> kIdKeys = {"id", "tool_call_id"};
inline constexpr std::string_view kTypeKey = "type";  ///< known and ignored

}  // namespace barg::text
