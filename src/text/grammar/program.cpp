#include "text/grammar/program.h"

#include <algorithm>
#include <unordered_map>

namespace barg::text::grammar {
namespace {

using Kind = Expression::Kind;

class Sizes {
 public:
  Sizes(const Expressions& expressions, std::uint64_t most) : expressions_(expressions), most_(most) {}

  /// Instructions, at most most_ + 1 ("too many").
  std::uint64_t of(ExpressionId id) {
    const auto known = known_.find(id);
    if (known != known_.end()) return known->second;
    const Expression& e = expressions_[id];
    std::uint64_t size = e.kind == Kind::kChoice ? e.parts.size() + 1 : 1;
    for (const ExpressionId part : e.parts) size = std::min(size + of(part), most_ + 1);
    if (e.kind == Kind::kRef) size = of(e.index);
    if (e.kind == Kind::kRepeat)
      size = times(size + 1, static_cast<std::uint64_t>(std::max(e.max, e.min)) + 1);
    known_.emplace(id, std::min(size, most_ + 1));
    return std::min(size, most_ + 1);
  }

 private:
  std::uint64_t times(std::uint64_t size, std::uint64_t n) const {
    return n > most_ / size ? most_ + 1 : size * n;
  }

  const Expressions& expressions_;
  std::uint64_t most_;
  std::unordered_map<ExpressionId, std::uint64_t> known_;
};

// Every expression is compiled with what follows it already in place.
class Compiler {
 public:
  Compiler(const Expressions& expressions, Program& program) : expressions_(expressions), program_(program) {}

  std::uint32_t compile(ExpressionId id, std::uint32_t next) {
    const Expression& e = expressions_[id];
    switch (e.kind) {
      case Kind::kChars:
        return emit({Instruction::Kind::kChars, e.index, next, 0});
      case Kind::kSequence:
        for (auto part = e.parts.rbegin(); part != e.parts.rend(); ++part) next = compile(*part, next);
        return next;
      case Kind::kChoice:
        return choice(e, next);
      case Kind::kRepeat:
        return repeat(e, next);
      case Kind::kTextStart:
        return emit({Instruction::Kind::kTextStart, 0, next, 0});
      case Kind::kTextEnd:
        return emit({Instruction::Kind::kTextEnd, 0, next, 0});
      case Kind::kRef:
        return compile(e.index, next);
    }
    return next;
  }

  std::uint32_t emit(Instruction instruction) {
    program_.code.push_back(instruction);
    return static_cast<std::uint32_t>(program_.code.size() - 1);
  }

 private:
  std::uint32_t split(std::uint32_t next, std::uint32_t other) {
    return emit({Instruction::Kind::kSplit, 0, next, other});
  }

  std::uint32_t choice(const Expression& e, std::uint32_t next) {
    // One of no parts takes a code point of no set.
    if (e.parts.empty()) return emit({Instruction::Kind::kChars, kNoSet, next, 0});
    std::uint32_t entry = compile(e.parts[0], next);
    for (std::size_t i = 1; i < e.parts.size(); ++i) entry = split(entry, compile(e.parts[i], next));
    return entry;
  }

  std::uint32_t repeat(const Expression& e, std::uint32_t next) {
    const ExpressionId item = e.parts[0];
    std::uint32_t entry = next;
    std::int64_t copies = e.min;
    if (e.max < 0) {
      const std::uint32_t loop = split(0, next);
      const std::uint32_t body = compile(item, loop);
      program_.code[loop].next = body;
      entry = copies > 0 ? body : loop;
      copies = std::max<std::int64_t>(copies - 1, 0);
    }
    // Each optional copy leaves for the end at once, so that few states are alive together.
    for (std::int64_t i = e.min; i < e.max; ++i) entry = split(compile(item, entry), next);
    for (std::int64_t i = 0; i < copies; ++i) entry = compile(item, entry);
    return entry;
  }

  const Expressions& expressions_;
  Program& program_;
};

}  // namespace

std::optional<Program> compile_program(const Expressions& expressions, ExpressionId root,
                                       std::uint64_t most) {
  if (Sizes(expressions, most).of(root) > most) return std::nullopt;
  Program program;
  Compiler compiler(expressions, program);
  const std::uint32_t match = compiler.emit({Instruction::Kind::kMatch, 0, 0, 0});
  program.entry = compiler.compile(root, match);
  return program;
}

}  // namespace barg::text::grammar
