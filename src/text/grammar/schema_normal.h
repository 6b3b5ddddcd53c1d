// Normaliser: from Terms to Norms. Every keyword is a step that takes what is known of the value so far and cuts it
// down; what a step cannot do exactly is an Issue, which ends the work or, where widening is allowed, is recorded in
// the Norm while the step is left out.
//
// Widening is allowed where more values in a part mean more values in the whole. Below `not`, in a condition, in what
// is taken away for oneOf it is the other way round: there everything is Exact. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/schema_algebra.h"
#include "text/grammar/schema_document.h"
#include "text/grammar/schema_keywords.h"
#include "text/grammar/schema_languages.h"
#include "text/grammar/schema_shape.h"
#include "text/grammar/schema_terms.h"

namespace barg::text::grammar::schema {

class Normaliser {
 public:
  enum class Mode : std::uint8_t { kExact, kWiden };

  /// `work`: as DfaLimits::work; outlives it.
  Normaliser(SchemaDocument& document, bool lenient, std::int64_t& work);
  Normaliser(const Normaliser&) = delete;
  Normaliser& operator=(const Normaliser&) = delete;

  /// As wide as `lenient` allows. The Norm lives as long as this.
  Checked<const Norm*> norm(Term term) { return norm(term, lenient_ ? Mode::kWiden : Mode::kExact); }
  /// A Term that this can show to have no member; never wrong, but it may miss some.
  bool surely_empty(Term term);

  Terms& terms() { return terms_; }
  Algebra& algebra() { return algebra_; }
  Languages& languages() { return languages_; }
  /// (place, keyword) of whatever was applied, if it is not dropped later.
  const std::set<std::pair<Place, std::string>>& enforced() const { return enforced_; }
  /// (place, keyword) -> why it has no effect there.
  const std::map<std::pair<Place, std::string>, std::string>& without_effect() const { return without_effect_; }

 private:
  using Step = std::function<Checked<Norm>(const Norm&)>;
  struct Work;  // one schema on its way

  Checked<const Norm*> norm(Term term, Mode mode);
  Checked<const Norm*> literal(Literal literal, Mode mode);
  Checked<Norm> make_term(Term term, Mode mode);
  Checked<Norm> make_literal(Literal literal, Mode mode);
  Checked<const Norm*> schema_at(Place place, Mode mode) { return norm(terms_.schema(place), mode); }

  // schema_constant.cpp
  Checked<Norm> constant(const Json& value);
  Checked<Norm> constants(const Json::Array& values);

  // schema_steps.cpp
  Checked<Norm> make_schema(Place place, Mode mode);
  Checked<void> run(Work& work, std::string_view keyword, const Step& step);
  /// Records the issue where widening is allowed, else returns it.
  Checked<void> leave_out(Work& work, Issue issue);
  Checked<void> refuse_unknown(Work& work);
  Checked<void> apply_types(Work& work);
  Checked<void> apply_numbers(Work& work);
  Checked<void> apply_strings(Work& work);
  Checked<void> apply_ref(Work& work);
  Checked<void> apply_in_order(Work& work);
  void note_without_effect(const Work& work);

  // schema_structures.cpp
  Checked<void> apply_arrays(Work& work);
  Checked<void> apply_objects(Work& work);
  Checked<ObjectShape> names_shape(const Work& work, bool with_patterns);
  Checked<Norm> with_names(const Norm& known, Place names, Mode mode);
  Checked<void> apply_unevaluated(Work& work);

  // schema_logic.cpp
  Checked<void> apply_all_of(Work& work);
  Checked<void> apply_any_of(Work& work);
  Checked<void> apply_one_of(Work& work);
  Checked<void> apply_not(Work& work);
  Checked<void> apply_condition(Work& work);
  Checked<void> apply_dependents(Work& work);
  Checked<Norm> any_of(const Norm& known, Place list, Mode mode);
  Checked<Norm> one_of(const Norm& known, Place list, Mode mode);
  /// All are objects, and one required property has other strings in each of `norms`.
  bool told_apart(const std::vector<Norm>& norms, Mode mode);
  bool told_apart_by(const std::string& name, const std::vector<Norm>& norms, Mode mode);
  Checked<std::vector<const Norm*>> branches(Place list, Mode mode);
  Checked<Norm> condition(const Norm& known, const Work& work);
  /// Where the property `name` is, these are required, and `schema` holds unless it is kNoPlace.
  Checked<Norm> depends(const Norm& known, std::string_view name, const Json* required, Place schema, Mode mode);

  SchemaDocument& document_;
  const bool lenient_;
  Languages languages_;
  Terms terms_;
  Algebra algebra_;
  std::deque<Norm> norms_;
  std::map<std::pair<Literal, Mode>, Checked<const Norm*>> literals_;
  std::map<std::pair<Term, Mode>, Checked<const Norm*>> known_;
  std::set<std::pair<Literal, Mode>> open_;  ///< literals being computed
  std::map<Term, bool> empty_;
  std::int32_t depth_ = 0, proof_depth_ = 0;
  std::int64_t norms_left_ = 50'000;
  std::set<std::pair<Place, std::string>> enforced_;
  std::map<std::pair<Place, std::string>, std::string> without_effect_;
};

/// One schema object on its way to its Norm.
struct Normaliser::Work {
  Place place;
  Mode mode;
  Draft draft;
  const Json& schema;
  Norm norm;

  /// The value of a keyword of this draft; what is none (left out by `lenient`) may be anything, and is not looked at.
  const Json* find(std::string_view keyword) const {
    return find_keyword(keyword, draft) == nullptr ? nullptr : schema.find(keyword);
  }
};

}  // namespace barg::text::grammar::schema
