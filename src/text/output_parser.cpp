// Text and reasoning, and where runs of calls begin and end.
#include "text/output_parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"
#include "text/output_channels.h"
#include "text/output_form.h"

namespace barg::text {
namespace {

constexpr std::size_t kMaxKept = 64 << 10;  ///< bytes of what may be a call before it has started
constexpr std::size_t kMaxSpaces = 256;     ///< white space that may be layout

}  // namespace

struct OutputParser::Impl {
  enum class Mode : std::uint8_t { kText, kReasoning, kRun, kChannels };
  enum class Mark : std::uint8_t { kOpen, kClose, kAnswerOpen, kAnswerClose, kRun };

  std::shared_ptr<const BoundDialectImpl> dialect;
  const ParserOptions options;
  OutputSink sink;
  FormReader reader;
  std::optional<ChannelReader> channels;
  Pushback again;
  Mode mode = Mode::kText;

  // What may begin in text or reasoning: marks[i] is what literals[i] means.
  std::vector<const Literal*> literals;
  std::vector<Mark> marks;
  std::vector<std::vector<const BoundForm*>> runs;  ///< forms that begin with literals[i]
  std::array<bool, 256> begins{};                   ///< some literal starts with this byte
  LiteralScan scan;
  bool calls = false;         ///< there are forms to look for
  bool verbatim = false;      ///< reasoning goes out as text, in its markers
  bool untouched = true;

  std::string spaces;         ///< white space that is layout if a marker follows
  bool spaces_end = false;    ///< ... and holds the marker that ends an answer
  bool skip_all = false, skip_newlines = false;  ///< behind a marker
  bool fresh = true;          ///< nothing but white space in this part of the answer
  bool line_start = true;
  bool answer_opened = false;  ///< by its own marker

  // A run that no call of has started yet.
  Symbols kept;
  std::size_t kept_bytes = 0;
  std::size_t run = 0, alternative = 0;
  std::size_t furthest = 0;  ///< symbols that some form of the run had read

  Impl(std::shared_ptr<const BoundDialect> bound, ParserOptions opts)
      : dialect(std::static_pointer_cast<const BoundDialectImpl>(std::move(bound))),  // bind_dialect makes no other
        options(std::move(opts)),
        sink(options.tools),
        reader(*dialect, sink, options.parallel) {
    verbatim = !options.read_reasoning || dialect->dialect().keep_reasoning_in_text;
    if (dialect->channels().channels) {
      channels.emplace(*dialect, sink, options);
      mode = Mode::kChannels;
      return;
    }
    calls = sink.has_tools() && !dialect->forms().empty();
    add_mark(dialect->reasoning_open(), Mark::kOpen);
    add_mark(dialect->reasoning_close(), Mark::kClose);
    if (!verbatim) {
      add_mark(dialect->answer_open(), Mark::kAnswerOpen);
      add_mark(dialect->answer_close(), Mark::kAnswerClose);
    }
    if (calls) {
      for (const BoundForm& form : dialect->forms()) add_run(form);
    }
    if (!options.inside_reasoning) return;
    mode = Mode::kReasoning;
    skip_newlines = !verbatim;
  }

  void add_mark(const Literal& literal, Mark mark) {
    if (literal.empty()) return;
    literals.push_back(&literal);
    marks.push_back(mark);
    runs.emplace_back();
    if (!is_token(literal[0])) begins[static_cast<std::size_t>(literal[0])] = true;
    CHECK(literals.size() < 32);
  }

  void add_run(const BoundForm& form) {
    for (std::size_t i = 0; i < literals.size(); ++i) {
      if (marks[i] != Mark::kRun || *literals[i] != form.trigger) continue;
      runs[i].push_back(&form);
      return;
    }
    add_mark(form.trigger, Mark::kRun);
    runs.back().push_back(&form);
  }

  // ---- symbols ----

  void feed(Symbol s) {
    again.push_back(s);
    while (!again.empty()) {
      const Symbol next = again.front();
      again.pop_front();
      switch (mode) {
        case Mode::kText:
        case Mode::kReasoning: scan_symbol(next); break;
        case Mode::kRun: run_symbol(next); break;
        case Mode::kChannels: channels->push(next, again); break;
      }
    }
  }

  bool calls_allowed() const { return calls && (options.parallel || sink.complete_calls() == 0); }

  /// May literals[i] begin here?
  bool allowed(std::size_t i) const {
    const bool reasoning = mode == Mode::kReasoning;
    switch (marks[i]) {
      case Mark::kOpen: return fresh || (!reasoning && is_token((*literals[i])[0]));
      case Mark::kClose: return reasoning;
      case Mark::kAnswerOpen: return !reasoning && fresh;
      case Mark::kAnswerClose: return !reasoning && (answer_opened || dialect->answer_open().empty());
      case Mark::kRun: return !reasoning && calls_allowed() && stands_right(runs[i]);
    }
    return false;
  }

  bool stands_right(const std::vector<const BoundForm*>& forms) const {
    const std::size_t newline = spaces.find_last_of('\n');
    const bool on_line = newline != spaces.npos || line_start;
    for (const BoundForm* form : forms) {
      const Where where = form->form->where;
      if (where == Where::kAnywhere || fresh || (where == Where::kLine && on_line)) return true;
    }
    return false;
  }

  bool holds_space(Symbol s) const {
    if (mode == Mode::kReasoning) return !verbatim && (s == '\n' || s == '\r');
    return is_space(s) && (calls || (fresh && !literals.empty()) || !dialect->answer_close().empty());
  }

  void scan_symbol(Symbol s) {
    if (!scan.holding()) {
      const bool newline = s == '\n' || s == '\r';
      if ((skip_all && is_space(s)) || (skip_newlines && newline)) return;
      if (holds_space(s)) return space(s);
    }
    Symbol plain = 0;
    const int found = scan.push(literals, [this](std::size_t i) { return allowed(i); }, s, again, plain);
    if (found == LiteralScan::kHeld) return;
    if (found == LiteralScan::kPlain) return emit(plain);
    found_mark(static_cast<std::size_t>(found));
  }

  void space(Symbol s) {
    skip_newlines = false;
    spaces += static_cast<char>(s);
    if (spaces.size() >= kMaxSpaces) release_spaces();
  }

  void out(std::string_view text) {
    if (text.empty()) return;
    if (mode == Mode::kReasoning && !verbatim) {
      sink.reasoning(text);
    } else {
      sink.text(text);
    }
    line_start = text.back() == '\n';
  }

  void release_spaces() {
    out(spaces);
    drop_spaces();
  }
  void drop_spaces() {
    spaces.clear();
    spaces_end = false;
  }

  /// An ordinary symbol.
  void emit(Symbol s) {
    if (is_token(s)) {
      const bool second_call = calls && !calls_allowed() && mode == Mode::kText;
      if (second_call) sink.note("a second tool call where one was allowed");
      if (!is_shown(s) && !second_call) return;
    }
    if (!spaces.empty()) release_spaces();
    std::string text;
    dialect->append(text, s);
    out(text);
    fresh = fresh && is_space(s);
    skip_all = skip_newlines = false;
  }

  void found_mark(std::size_t i) {
    switch (marks[i]) {
      case Mark::kOpen: return open_reasoning();
      case Mark::kClose: return close_reasoning();
      case Mark::kAnswerOpen:
        drop_spaces();
        skip_newlines = true;
        answer_opened = true;
        return;
      case Mark::kAnswerClose:  // unless something follows
        spaces_end = true;
        for (const Symbol s : scan.read()) dialect->append(spaces, s);
        if (spaces.size() >= kMaxSpaces) release_spaces();
        return;
      case Mark::kRun: return begin_run(i);
    }
  }

  void mark_as_text() {
    release_spaces();
    std::string text;
    for (const Symbol s : scan.read()) dialect->append(text, s);
    out(text);
  }

  void open_reasoning() {
    if (verbatim) {
      mark_as_text();
    } else if (fresh) {
      drop_spaces();
    } else {
      release_spaces();
    }
    mode = Mode::kReasoning;
    fresh = true;
    skip_all = false;
    skip_newlines = !verbatim;
  }

  void close_reasoning() {
    if (verbatim) mark_as_text();
    drop_spaces();
    mode = Mode::kText;
    fresh = line_start = true;
    skip_all = false;
    skip_newlines = !verbatim;
  }

  // ---- runs of calls ----

  void begin_run(std::size_t i) {
    mode = Mode::kRun;
    run = i;
    alternative = furthest = 0;
    kept = scan.read();
    kept_bytes = dialect->size_of(kept);
    next_alternative();
  }

  /// The next form that may stand here; false if there is none.
  bool next_alternative() {
    if (alternative >= runs[run].size()) return false;
    reader.begin(*runs[run][alternative++]);
    return true;
  }

  void run_symbol(Symbol s) {
    const std::size_t waiting = again.size();
    const int ended = reader.ended();
    const bool was_in_call = reader.in_call();
    const FormReader::Status status = reader.push(s, again);
    if (was_in_call || reader.in_call() || reader.ended() > ended) {
      drop_spaces();
      kept.clear();
      kept_bytes = 0;
    } else if (status == FormReader::Status::kMore && again.size() == waiting) {
      kept.push_back(s);
      kept_bytes += dialect->size_of(s);
    }
    switch (status) {
      case FormReader::Status::kMore:
        if (kept_bytes > kMaxKept) run_is_text();
        return;
      case FormReader::Status::kDone:
      case FormReader::Status::kLeft: return leave_run();
      case FormReader::Status::kFail: return run_failed(s);
      case FormReader::Status::kBroken:
        mode = Mode::kText;
        fresh = skip_all = skip_newlines = false;
        line_start = false;
        return;
    }
  }

  void leave_run() {
    mode = Mode::kText;
    kept.clear();
    kept_bytes = 0;
    fresh = line_start = skip_all = true;
    skip_newlines = false;
  }

  void run_failed(Symbol s) {
    again.push_front(s);
    const bool first = reader.ended() == 0;
    const std::size_t trigger = literals[run]->size();
    furthest = std::max(furthest, kept.size());
    if (first && next_alternative()) {
      give_back(again, std::span(kept).subspan(trigger));
      kept.resize(trigger);
      kept_bytes = dialect->size_of(kept);
      return;
    }
    // Nothing is looked for in what a form has read, or time would be quadratic.
    for (; first && kept.size() < furthest && !again.empty(); again.pop_front()) kept.push_back(again.front());
    run_is_text();
  }

  /// What was kept is no call, or no further one: text, as the model wrote it.
  void run_is_text() {
    // Without a marker it hardly looked like one: an answer may be JSON.
    const bool marked = runs[run].front()->form->where == Where::kAnywhere;
    if (marked) sink.note("what looked like a tool call is none, it was left in the text");
    mode = Mode::kText;
    release_spaces();
    std::string text;
    for (const Symbol s : kept) dialect->append(text, s);
    out(text);
    kept.clear();
    kept_bytes = 0;
    fresh = skip_all = skip_newlines = false;
  }

  // ---- the end ----

  void finish(bool natural) {
    if (channels) return channels->finish(natural);
    if (mode == Mode::kRun) {
      const int ended = reader.ended();
      const bool was_in_call = reader.in_call();
      reader.finish(natural);
      if (was_in_call || reader.ended() > ended) return;
      const bool layout = kept_is_space() || (!natural && reader.between());
      if (layout) return;
      run_is_text();
    }
    if (scan.holding()) {
      const Symbols held = scan.read();
      scan.clear();
      for (const Symbol s : held) emit(s);
    }
    if (spaces_end && natural) drop_spaces();
    release_spaces();
  }

  bool kept_is_space() const {
    for (const Symbol s : kept) {
      if (!is_space(s)) return false;
    }
    return true;
  }

  std::size_t held() const {
    if (channels) return channels->held();
    const std::size_t scanned = scan.holding() ? dialect->size_of(scan.read()) : 0;
    return spaces.size() + scanned + kept_bytes + (mode == Mode::kRun ? reader.held() : 0);
  }

  bool in_reasoning() const { return channels ? channels->in_reasoning() : mode == Mode::kReasoning; }

  /// The common case: text in which nothing can begin.
  std::size_t pass_plain(std::string_view text) {
    if ((mode != Mode::kText && mode != Mode::kReasoning) || scan.holding()) return 0;
    std::size_t n = 0;
    while (n < text.size() && !is_space(byte_symbol(text[n])) && !begins[static_cast<unsigned char>(text[n])]) ++n;
    if (n == 0) return 0;
    release_spaces();
    out(text.substr(0, n));
    fresh = skip_all = skip_newlines = false;
    return n;
  }

  /// Where reasoning stays in the text, the marker that the prompt wrote belongs to it.
  void begin_once() {
    if (!std::exchange(untouched, false) || channels) return;
    const bool opened = options.inside_reasoning && dialect->dialect().keep_reasoning_in_text;
    if (opened) sink.text(dialect->reasoning().open + "\n");
  }

  void push_text(std::string_view text) {
    begin_once();
    while (!text.empty()) {
      const std::size_t passed = pass_plain(text);
      text.remove_prefix(passed);
      if (text.empty()) return;
      feed(byte_symbol(text.front()));
      text.remove_prefix(1);
    }
  }
};

OutputParser::OutputParser(std::shared_ptr<const BoundDialect> dialect, ParserOptions options)
    : impl_(std::make_unique<Impl>(std::move(dialect), std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;

void OutputParser::push_text(std::string_view text, OutputEvents& out) {
  impl_->sink.bind(out);
  impl_->push_text(text);
}

void OutputParser::push_token(TokenId id, std::string_view literal, bool shown, OutputEvents& out) {
  impl_->sink.bind(out);
  if (impl_->dialect->is_marker(id)) {
    impl_->begin_once();
    impl_->feed(token_symbol(id, shown));
  } else if (shown) {
    impl_->push_text(literal);
  }
}

void OutputParser::finish(bool natural, OutputEvents& out) {
  impl_->sink.bind(out);
  impl_->finish(natural);
}

std::size_t OutputParser::held() const { return impl_->held(); }
bool OutputParser::in_reasoning() const { return impl_->in_reasoning(); }
std::int32_t OutputParser::complete_calls() const { return impl_->sink.complete_calls(); }
const std::string& OutputParser::note() const { return impl_->sink.note(); }

}  // namespace barg::text
